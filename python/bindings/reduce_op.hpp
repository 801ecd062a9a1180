// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/group/reduce_op.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// A tendon.ReduceOp or its name; TypeError and ValueError name what is legal.
[[nodiscard]] ReduceOp reduce_op_from(nb::handle object);

}  // namespace tendon::python
