// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/group/reduce_op.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// Reads a tendon.ReduceOp or its name; TypeError and ValueError list the legal ones.
[[nodiscard]] ReduceOp reduce_op_from(nb::handle object);

}  // namespace tendon::python
