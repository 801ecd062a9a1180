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

/// The Python Context that a call uses: its argument, or that of the module for None.
TENDON_BETWEEN_MODULES [[nodiscard]] nb::object context_or_default(nb::object context);

/// The timeout of a call on a Python Context that has no `timeout=` [s].
TENDON_BETWEEN_MODULES [[nodiscard]] double default_timeout_s(nb::handle context);
/// The same for a collective of a group [s].
[[nodiscard]] double collective_timeout_s(nb::handle context);

}  // namespace tendon::python
