// SPDX-License-Identifier: Apache-2.0
// The few calls of NumPy's C interface that save the buffer protocol on the way of every array.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <tendon/tensor/tensor.hpp>

#include "plain_memory.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// nullopt for everything that is not exactly a numpy.ndarray, row-major, of an element type of
/// ours in this machine's byte order. The pointers live as long as the array.
[[nodiscard]] std::optional<PlainMemory> plain_array(nb::handle object);

/// A numpy.ndarray (or `type`, a subclass) on the memory of `tensor`, which `owner` keeps alive.
/// Precondition: format_of(tensor.dtype()) is not null.
[[nodiscard]] nb::object make_array(const Tensor& tensor, nb::object owner,
                                    nb::handle type = nb::handle());

}  // namespace tendon::python
