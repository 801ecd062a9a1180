// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <tendon/tensor/tensor.hpp>

#include "shared.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// Returns the memory of an array of any library as a Tensor, without a copy; it keeps the array
/// alive. Uses the first of: a tendon.Tensor, the buffer protocol, `__array_interface__`,
/// `__dlpack__` (1.x, else the older struct), `__cuda_array_interface__`. nullopt for an object
/// that has none of them. A tensor on a GPU has an order_of(): the stream that torch uses now or
/// that the interface names, else the legacy stream, which `__dlpack__` gets.
///
/// Messages call the array `name`. TypeError for elements that are not numbers or have a foreign
/// byte order; ValueError for strides between elements; unsupported_device for anything but the CPU
/// and GPUs of CUDA.
[[nodiscard]] std::optional<Tensor> tensor_from(nb::handle object, const std::string& name);

/// Returns the bytes of a contiguous buffer, a raw message, as a Storage that keeps its owner
/// alive.
TENDON_BETWEEN_MODULES [[nodiscard]] std::optional<Storage> bytes_from(nb::handle object);

}  // namespace tendon::python
