// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// Copies the batch to private, writable memory of this process. Other threads run meanwhile.
/// ResourceExhausted.
[[nodiscard]] TensorDict private_copy(const TensorDict& batch);
[[nodiscard]] Tensor private_copy(const Tensor& tensor);
[[nodiscard]] Storage private_copy(const Storage& bytes);

/// Returns the parts of a batch for pickle: (batch size, names of dimensions, [(name, entry),
/// ...]). A nested batch is such a tuple too. NumPy and this module pickle the arrays.
[[nodiscard]] nb::tuple parts_of(const TensorDict& batch);
/// A function of tendon._pickles.
[[nodiscard]] nb::object unpickling(const char* function);

/// Binds the methods that the modules copy and pickle call. Setting an entry raises the reason why
/// a batch cannot change.
void bind_copies(nb::class_<TensorDict>& type);
void bind_copies(nb::class_<Tensor>& type);

}  // namespace tendon::python
