// SPDX-License-Identifier: Apache-2.0
#include "memory/private_blocks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "core/fork_guard.hpp"
#include "core/process_wide.hpp"

namespace tendon::v0::detail {
namespace {

constinit PerProcess<PrivateBlocks> blocks_of_process;

std::uint64_t whole_pages(std::uint64_t size_bytes) {
  static const auto kPage = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return (size_bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

PrivateBlocks& PrivateBlocks::of_process() { return blocks_of_process.get(); }

std::shared_ptr<std::byte> PrivateBlocks::allocate(std::uint64_t size_bytes) {
  const bool is_large = size_bytes > kLargeBytes;
  const std::size_t size_class =
      is_large ? kLarge
               : static_cast<std::size_t>(
                     std::countr_zero(std::bit_ceil(std::max(size_bytes, kLeastBytes))) -
                     std::countr_zero(kLeastBytes));
  std::optional<Block> block;
  {
    const Lock lock(mutex_);
    block = find(size_class, size_bytes);
  }
  if (!block && is_large) {
    const std::uint64_t bytes = whole_pages(size_bytes);
    std::byte* const data = map(bytes);
    if (data != nullptr) block = Block{.data = data, .size_bytes = bytes, .size_class = kLarge};
  } else if (!block) {
    block = cut(size_class);
  }
  if (!block) return nullptr;
  take_into_use(*block, size_bytes);
  return {block->data, [this, block = *block, process = process_number()](std::byte* data) {
            if (process == process_number()) return release(block);
            // A forked child's copy: the parent's lists are not the child's.
            (void)madvise(data, block.size_bytes, MADV_DONTNEED);
          }};
}

std::optional<PrivateBlocks::Block> PrivateBlocks::find(std::size_t size_class,
                                                        std::uint64_t size_bytes) {
  Free& free = free_[size_class];
  // A large block that is a little larger will do.
  const auto found = std::find_if(free.warm.rbegin(), free.warm.rend(), [&](const Block& block) {
    return size_class != kLarge ||
           (block.size_bytes >= size_bytes && block.size_bytes - size_bytes <= size_bytes / 4);
  });
  if (found != free.warm.rend()) {
    const Block block = *found;
    free.warm.erase(std::next(found).base());
    warm_bytes_ -= block.size_bytes;
    return block;
  }
  if (free.cold.empty()) return std::nullopt;
  const Block block{
      .data = free.cold.back(), .size_bytes = kLeastBytes << size_class, .size_class = size_class};
  free.cold.pop_back();
  return block;
}

std::byte* PrivateBlocks::map(std::uint64_t size_bytes) {
  void* const data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

std::optional<PrivateBlocks::Block> PrivateBlocks::cut(std::size_t size_class) {
  const std::uint64_t size_bytes = kLeastBytes << size_class;
  std::byte* const data = map(kMappingBytes);
  if (data == nullptr) return std::nullopt;
  const Lock lock(mutex_);
  Free& free = free_[size_class];
  free.cut += kMappingBytes / size_bytes;
  free.cold.reserve(free.cut);
  // The lowest is on top: it is used first.
  for (std::uint64_t at = kMappingBytes; at > size_bytes; at -= size_bytes)
    free.cold.push_back(data + at - size_bytes);
  return Block{.data = data, .size_bytes = size_bytes, .size_class = size_class};
}

void PrivateBlocks::take_into_use(Block& block, std::uint64_t size_bytes) {
  const std::uint64_t needed = whole_pages(size_bytes);
  if (block.touched_bytes > needed + needed / 4) {
    (void)madvise(block.data + needed, block.touched_bytes - needed, MADV_DONTNEED);
    block.touched_bytes = needed;
  }
  block.touched_bytes = std::max(block.touched_bytes, needed);
}

void PrivateBlocks::release(const Block& block) noexcept {
  try {
    const Lock lock(mutex_);
    Block freed = block;
    freed.freed = ++last_freed_;
    free_[block.size_class].warm.push_back(freed);
    warm_bytes_ += block.size_bytes;
  } catch (const std::exception&) {
    // There is no memory for the list: the pages are returned, the addresses are lost.
    (void)madvise(block.data, block.size_bytes, MADV_DONTNEED);
  }
  while (const auto excess = take_excess()) cool(*excess);
}

std::optional<PrivateBlocks::Block> PrivateBlocks::take_excess() {
  const Lock lock(mutex_);
  if (warm_bytes_ <= kWarmBytes) return std::nullopt;
  Free* oldest = nullptr;
  for (Free& free : free_) {
    if (free.warm.empty()) continue;
    if (oldest == nullptr || free.warm.front().freed < oldest->warm.front().freed) oldest = &free;
  }
  const Block block = oldest->warm.front();
  oldest->warm.pop_front();
  warm_bytes_ -= block.size_bytes;
  return block;
}

void PrivateBlocks::cool(const Block& block) noexcept {
  if (block.size_class == kLarge) {
    (void)munmap(block.data, block.size_bytes);
    return;
  }
  (void)madvise(block.data, block.size_bytes, MADV_DONTNEED);
  const Lock lock(mutex_);
  free_[block.size_class].cold.push_back(block.data);
}

std::uint64_t PrivateBlocks::warm_bytes() {
  const Lock lock(mutex_);
  return warm_bytes_;
}

}  // namespace tendon::v0::detail
