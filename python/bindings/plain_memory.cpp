// SPDX-License-Identifier: Apache-2.0
#include "plain_memory.hpp"

#include "errors.hpp"
#include "numpy_api.hpp"
#include "torch_api.hpp"

namespace tendon::python {

std::optional<PlainMemory> plain_memory(nb::handle object) {
  if (auto array = plain_array(object)) return array;
  return plain_tensor(object);
}

Tensor tensor_of(const PlainMemory& memory, std::shared_ptr<const void> owner) {
  const std::uint64_t size_bytes = unwrap(memory.shape.size_bytes(memory.dtype));
  const Access access = memory.read_only ? Access::read_only : Access::read_write;
  return unwrap(Tensor::view(Storage(std::move(owner), memory.data, size_bytes, access), 0,
                             memory.dtype, memory.shape));
}

}  // namespace tendon::python
