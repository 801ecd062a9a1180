// SPDX-License-Identifier: Apache-2.0
// The few calls of NumPy's C interface that save the buffer protocol on the way of every array.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/tensor.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// A numpy.ndarray whose elements have no gaps, as it lies in memory.
struct PlainArray {
  std::byte* data;
  DType dtype;
  Shape shape;
  bool read_only;
};

/// nullopt for everything that is not exactly a numpy.ndarray, row-major, of an element type of
/// ours in this machine's byte order. The pointers live as long as the array.
[[nodiscard]] std::optional<PlainArray> plain_array(nb::handle object);

/// The Tensor of it; `owner` keeps the array alive.
[[nodiscard]] Tensor tensor_of(const PlainArray& array, std::shared_ptr<const void> owner);

/// A numpy.ndarray (or `type`, a subclass) on the memory of `tensor`, which `owner` keeps alive.
/// Precondition: format_of(tensor.dtype()) is not null.
[[nodiscard]] nb::object make_array(const Tensor& tensor, nb::object owner,
                                    nb::handle type = nb::handle());

}  // namespace tendon::python
