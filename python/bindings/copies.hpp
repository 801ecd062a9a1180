// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The same in private memory of this process, which may be written. Other threads run while it
/// copies. ResourceExhausted.
[[nodiscard]] TensorDict private_copy(const TensorDict& batch);
[[nodiscard]] Tensor private_copy(const Tensor& tensor);
[[nodiscard]] Storage private_copy(const Storage& bytes);

/// The parts of a batch for pickle: (batch size, names of dimensions, [(name, entry), ...]), where
/// a batch below is such a tuple too. NumPy and this module pickle the arrays.
[[nodiscard]] nb::tuple parts_of(const TensorDict& batch);
/// A function of tendon._pickles.
[[nodiscard]] nb::object unpickling(const char* function);

/// Methods that the modules copy and pickle call; setting an entry says why a batch stays as it is.
void bind_copies(nb::class_<TensorDict>& type);
void bind_copies(nb::class_<Tensor>& type);

}  // namespace tendon::python
