// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <tendon/runtime/context.hpp>

#include "shared.hpp"
#include "timeouts.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Context. The last share closes it, without the GIL.
struct ContextHandle {
  std::shared_ptr<Context> context;
  double timeout_s = static_cast<double>(kTimeout.count());
  double collective_timeout_s = static_cast<double>(kCollectiveTimeout.count());
};

/// Returns the Python Context of a call: its argument, or the module's default for None.
TENDON_BETWEEN_MODULES [[nodiscard]] nb::object context_or_default(nb::object context);

/// The timeout of calls on a Python Context that omit `timeout=` [s].
TENDON_BETWEEN_MODULES [[nodiscard]] double default_timeout_s(nb::handle context);
/// The same for the collectives of a group [s].
[[nodiscard]] double collective_timeout_s(nb::handle context);

}  // namespace tendon::python
