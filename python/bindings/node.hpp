// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <tendon/fabric/node.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Node.
struct NodeHandle {
  nb::object context;
  std::shared_ptr<Node> node;
};

/// The deadline of a `timeout=` argument for a call on an object that belongs to a Python Node.
[[nodiscard]] Deadline until(nb::handle node, nb::handle timeout);

}  // namespace tendon::python
