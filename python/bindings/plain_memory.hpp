// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/shape.hpp>
#include <tendon/tensor/tensor.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The elements of an array or tensor, row-major without gaps, where they lie.
struct PlainMemory {
  std::byte* data;
  DType dtype;
  Shape shape;
  bool read_only;
};

/// nullopt for everything but a numpy.ndarray, torch.Tensor or torch.nn.Parameter on the CPU whose
/// memory holds its elements, row-major, of an element type of ours. What is left takes the ways
/// of tensor_from, which also finds the words for a refusal.
[[nodiscard]] std::optional<PlainMemory> plain_memory(nb::handle object);

/// The Tensor of it; `owner` keeps the array or tensor alive.
[[nodiscard]] Tensor tensor_of(const PlainMemory& memory, std::shared_ptr<const void> owner);

}  // namespace tendon::python
