// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <tendon/memory/storage.hpp>

namespace tendon::test {

/// Makes memory that acts as that of a GPU: the process ends if the CPU reads or writes it.
inline Storage storage_on_gpu(std::uint64_t size_bytes, Device device = {DeviceKind::cuda, 0}) {
  void* const memory = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  std::shared_ptr<const void> owner(
      memory, [size_bytes](void* address) { (void)munmap(address, size_bytes); });
  return {std::move(owner), static_cast<std::byte*>(memory),
          size_bytes,       Access::read_write,
          Origin::here,     device};
}

}  // namespace tendon::test
