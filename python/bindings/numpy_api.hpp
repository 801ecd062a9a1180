// SPDX-License-Identifier: Apache-2.0
// The calls of NumPy's C interface that avoid the buffer protocol for each array.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <tendon/tensor/tensor.hpp>

#include "plain_memory.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// nullopt unless the object is exactly a numpy.ndarray, row-major, with a supported element type
/// in this machine's byte order. The pointers live as long as the array.
[[nodiscard]] std::optional<PlainMemory> plain_array(nb::handle object);

/// A numpy.ndarray (or `type`, a subclass) on the memory of `tensor`, which `owner` keeps alive.
/// Precondition: format_of(tensor.dtype()) is not null.
[[nodiscard]] nb::object make_array(const Tensor& tensor, nb::object owner,
                                    nb::handle type = nb::handle());

}  // namespace tendon::python
