// SPDX-License-Identifier: Apache-2.0
// Tensors of torch. A program that has not imported torch pays one look-up in sys.modules.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <tendon/tensor/dlpack_abi.hpp>
#include <tendon/tensor/tensor.hpp>

#include "plain_memory.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// nullopt unless the object is exactly a torch.Tensor or torch.nn.Parameter on the CPU with
/// row-major memory, and torch has DLPack's table of C functions. The memory lives as long as
/// storage_of(object).
[[nodiscard]] std::optional<PlainMemory> plain_tensor(nb::handle object);

/// True if a Python function of torch calls. A call by tendon._arrays counts as one by its caller.
[[nodiscard]] bool called_by_torch();

/// True for a torch.Tensor and its subclasses.
[[nodiscard]] bool is_torch_tensor(nb::handle object);

/// The reason why a tensor's memory differs from the values that its users see, with the remedy;
/// null without such a reason. torch's own `__dlpack__` exports a negated tensor as if it were not
/// negated. Exceptions of the tensor's methods pass through. Precondition: is_torch_tensor(object).
[[nodiscard]] const char* why_no_access(nb::handle object);

/// The tensor as torch's C function for DLPack describes it; nullopt if the function is missing or
/// refuses. The pointers to shape and strides live until the next call of Python. The memory lives
/// as long as storage_of(object). Precondition: is_torch_tensor(object).
[[nodiscard]] std::optional<dlpack::DLTensor> exchanged_view(nb::handle object);

/// The number of torch's current stream on a GPU. Precondition: a tensor lies there.
[[nodiscard]] std::uintptr_t torch_stream(int device);

/// The owner of a tensor's memory; it stays valid if the tensor gets other memory. Precondition:
/// plain_tensor(object) or exchanged_view(object) has found memory.
[[nodiscard]] nb::object storage_of(nb::handle object);

/// Makes a torch.Tensor on the memory of `tensor`, which it keeps alive. For read-only memory it is
/// a copy, counted by tendon.copied_read_only().
[[nodiscard]] nb::object to_torch(Tensor tensor);

}  // namespace tendon::python
