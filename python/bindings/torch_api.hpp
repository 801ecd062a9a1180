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

/// nullopt for everything that is not exactly a torch.Tensor or torch.nn.Parameter on the CPU whose
/// memory holds its elements, row-major; and for every tensor of a torch without DLPack's table of
/// C functions. The memory lives as long as storage_of(object).
[[nodiscard]] std::optional<PlainMemory> plain_tensor(nb::handle object);

/// Does a function of torch, in Python, call? A call by tendon._arrays counts as one of its caller.
[[nodiscard]] bool called_by_torch();

/// True for a torch.Tensor and its subclasses.
[[nodiscard]] bool is_torch_tensor(nb::handle object);

/// Why the memory of a tensor is not what its users see, with the remedy; null for a tensor without
/// such a reason. torch's own `__dlpack__` exports a negated one as if it were not. What the
/// tensor's methods raise passes through. Precondition: is_torch_tensor(object).
[[nodiscard]] const char* why_no_access(nb::handle object);

/// The tensor as torch's C function for DLPack describes it; nullopt where that is missing or
/// refuses. The pointers to shape and strides live until the next call of Python, that to the
/// memory as long as storage_of(object). Precondition: is_torch_tensor(object).
[[nodiscard]] std::optional<dlpack::DLTensor> exchanged_view(nb::handle object);

/// The number of the stream on which torch works now on a GPU. Precondition: a tensor lies there.
[[nodiscard]] std::uintptr_t torch_stream(int device);

/// The owner of a tensor's memory, also when the tensor gets another one meanwhile.
/// Precondition: plain_tensor(object) or exchanged_view(object) has found memory.
[[nodiscard]] nb::object storage_of(nb::handle object);

/// A torch.Tensor on the memory of `tensor`, which it keeps alive; of memory that may only be read
/// it is a copy, counted by tendon.copied_read_only().
[[nodiscard]] nb::object to_torch(Tensor tensor);

}  // namespace tendon::python
