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

/// The row-major, gapless elements of an array or tensor, at their place in memory.
struct PlainMemory {
  std::byte* data;
  DType dtype;
  Shape shape;
  bool read_only;
};

/// nullopt unless the object is a numpy.ndarray, torch.Tensor or torch.nn.Parameter on the CPU with
/// row-major memory of a supported element type. tensor_from handles all other objects and words
/// refusals.
[[nodiscard]] std::optional<PlainMemory> plain_memory(nb::handle object);

/// Makes a Tensor of the memory; `owner` keeps the array or tensor alive.
[[nodiscard]] Tensor tensor_of(const PlainMemory& memory, std::shared_ptr<const void> owner);

}  // namespace tendon::python
