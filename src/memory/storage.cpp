// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <new>
#include <tendon/memory/storage.hpp>
#include <utility>

#include "memory/private_blocks.hpp"

namespace tendon::v0 {

using detail::PrivateBlocks;

namespace {
constexpr std::align_val_t kAlignment{64};
// Aligned operator new rounds sizes up to the alignment: near 2^64 that wraps to an empty block.
constexpr auto kLargestBytes =
    static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max());

// AddressSanitizer watches the memory of the C library.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUsesBlocks = false;
#else
constexpr bool kUsesBlocks = true;
#endif
}  // namespace

Result<Storage> Storage::allocate(std::uint64_t size_bytes) {
  if (size_bytes == 0) return Storage(nullptr, nullptr, 0, Access::read_write);
  if (kUsesBlocks && size_bytes >= PrivateBlocks::kLeastBytes && size_bytes <= kLargestBytes) {
    if (auto block = PrivateBlocks::of_process().allocate(size_bytes)) {
      std::byte* const data = block.get();
      return Storage(std::move(block), data, size_bytes, Access::read_write);
    }
  }
  void* memory =
      size_bytes > kLargestBytes ? nullptr : ::operator new(size_bytes, kAlignment, std::nothrow);
  if (memory == nullptr) {
    return Error{
        ErrorCode::resource_exhausted, "storage.allocate",
        "private memory: the system has no " + std::to_string(size_bytes) + " bytes to give"};
  }
  std::shared_ptr<const void> owner(memory, [](void* p) { ::operator delete(p, kAlignment); });
  return Storage(std::move(owner), static_cast<std::byte*>(memory), size_bytes, Access::read_write);
}

}  // namespace tendon::v0
