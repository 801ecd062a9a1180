// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/tensor/tensor.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// Makes the user's object for a leaf: a numpy.ndarray on the same memory, or a tendon.Tensor when
/// NumPy lacks the element type or the leaf lies on a GPU. Either keeps the memory alive.
[[nodiscard]] nb::object to_array(Tensor tensor);

/// Raw bytes as a memoryview that keeps them alive.
[[nodiscard]] nb::object to_memoryview(const Storage& bytes);

}  // namespace tendon::python
