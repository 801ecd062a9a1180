// SPDX-License-Identifier: Apache-2.0
// What a receive makes of a batch: `as_=` and `device=`.
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// What `as_` and `device` name, for converted(). It is asked before the wait: a mistake should not
/// need a message to be noticed. TypeError, and UnsupportedDevice for every device but the CPU.
[[nodiscard]] nb::object conversion_from(nb::handle as, nb::handle device);

/// That, made of a batch; None: the batch itself.
[[nodiscard]] nb::object converted(TensorDict batch, nb::handle conversion);

/// What tendon._each has: an iterator of what `source`.recv() and arecv() return.
[[nodiscard]] nb::object each_of(nb::object source, nb::object timeout, nb::dict arguments);

}  // namespace tendon::python
