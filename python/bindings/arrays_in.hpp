// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <tendon/tensor/tensor.hpp>

#include "shared.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The memory of an array of whatever library as a Tensor, without a copy; it keeps the array
/// alive. Taken by the first of: a tendon.Tensor, the buffer protocol, `__array_interface__`,
/// `__dlpack__` (1.x, else the struct before it), `__cuda_array_interface__`. nullopt for an object
/// that has none of them. One on a GPU has an order_of(): that of the stream which torch has now or
/// the interface names, else of the legacy stream, which `__dlpack__` gets.
///
/// `name` is how messages call it. TypeError for elements that are no numbers, or whose byte order
/// is not this machine's; ValueError for strides between elements; unsupported_device off the CPU
/// and GPUs of CUDA.
[[nodiscard]] std::optional<Tensor> tensor_from(nb::handle object, const std::string& name);

/// The bytes of a contiguous buffer as a Storage that keeps its owner alive: a raw message.
TENDON_BETWEEN_MODULES [[nodiscard]] std::optional<Storage> bytes_from(nb::handle object);

}  // namespace tendon::python
