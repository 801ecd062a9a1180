// SPDX-License-Identifier: Apache-2.0
#include "secure/secret_memory.hpp"

#include <openssl/crypto.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <new>
#include <string>
#include <tendon/observe/log.hpp>

#include "core/fork_guard.hpp"
#include "core/process_wide.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kSlabBytes = 8192;
constexpr std::array<std::size_t, 2> kBlockBytes = {64, 1152};

constexpr std::size_t blocks_of(std::size_t size) {
  return (kSlabBytes - SecretMemory::kAlignment) / kBlockBytes[size];
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::byte* map_pages(std::size_t bytes) {
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(pages);
}

// A kernel or a sandbox that refuses this must not prevent links.
void protect(std::byte* pages, std::size_t bytes) {
  (void)madvise(pages, bytes, MADV_DONTDUMP);
  (void)madvise(pages, bytes, MADV_WIPEONFORK);
  if (mlock(pages, bytes) == 0) return;
  const int failure = errno;
  static constinit std::atomic<bool> has_warned = false;
  if (has_warned.exchange(true, std::memory_order_relaxed)) return;
  log(LogLevel::warn, "secure.memory",
      "keys are in memory that may be swapped to a disk: mlock(" + std::to_string(bytes) +
          " bytes): " + errno_text(failure) +
          "; let this process lock more (ulimit -l, LimitMEMLOCK= of systemd), or encrypt swap");
}

constinit PerProcess<SecretMemory> memory_of_process;

}  // namespace

/// Lies at the start of its own pages, so that a block leads to it. A child finds zeros there.
struct SecretMemory::Slab {
  explicit Slab(std::size_t its_size) : size(its_size) {}

  alignas(kAlignment) Slab* next = nullptr;  // with a free block
  const std::uint32_t process = process_number();
  const std::size_t size;  // of its blocks: an index
  std::array<std::uint64_t, 2> used{};

  static Slab* of(const std::byte* block) {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    return reinterpret_cast<Slab*>(address / kSlabBytes * kSlabBytes);
  }
  [[nodiscard]] bool is_full() const {
    const int count = std::popcount(used[0]) + std::popcount(used[1]);
    return count == static_cast<int>(blocks_of(size));
  }
  // Precondition: a block is free.
  [[nodiscard]] std::byte* take() {
    const std::size_t word = used[0] == ~std::uint64_t{0} ? 1 : 0;
    const auto bit = static_cast<std::size_t>(std::countr_one(used[word]));
    used[word] |= std::uint64_t{1} << bit;
    return first_block() + (word * 64 + bit) * kBlockBytes[size];
  }
  void give(const std::byte* block) {
    const auto index = static_cast<std::size_t>(block - first_block()) / kBlockBytes[size];
    used[index / 64] &= ~(std::uint64_t{1} << index % 64);
  }

 private:
  std::byte* first_block() { return reinterpret_cast<std::byte*>(this) + sizeof(Slab); }
};

SecretMemory& SecretMemory::of_process() { return memory_of_process.get(); }

// Aligned to its size, with nothing beside it where pages have 4 KiB. munmap() refuses to cut
// larger pages, which only wastes memory.
SecretMemory::Slab* SecretMemory::make_slab(std::size_t size) {
  static_assert(sizeof(Slab) == kAlignment);
  static_assert(kBlockBytes.size() == kSizes);
  constexpr std::size_t kMapped = 2 * kSlabBytes - kPageBytes;
  std::byte* const pages = map_pages(kMapped);
  auto* const begin = reinterpret_cast<std::byte*>(Slab::of(pages + kSlabBytes - 1));
  const auto before = static_cast<std::size_t>(begin - pages);
  const std::size_t after = kMapped - kSlabBytes - before;
  if (before != 0) munmap(pages, before);
  if (after != 0) munmap(begin + kSlabBytes, after);
  protect(begin, kSlabBytes);
  return new (begin) Slab(size);
}

std::byte* SecretMemory::take_block(std::size_t size) {
  {
    const Lock lock(mutex_);
    if (Slab* const slab = roomy_[size]; slab != nullptr) {
      std::byte* const block = slab->take();
      if (slab->is_full()) roomy_[size] = slab->next;
      return block;
    }
  }
  // Called without the lock, because the log may call the program.
  Slab* const slab = make_slab(size);
  std::byte* const block = slab->take();
  const Lock lock(mutex_);
  slab->next = roomy_[size];
  roomy_[size] = slab;
  return block;
}

void SecretMemory::give_block(Slab* slab, const std::byte* block) noexcept {
  const Lock lock(mutex_);
  const bool was_full = slab->is_full();
  slab->give(block);
  if (!was_full) return;
  slab->next = roomy_[slab->size];
  roomy_[slab->size] = slab;
}

MutableBytes SecretMemory::take(std::size_t size_bytes) {
  for (std::size_t size = 0; size < kSizes; ++size)
    if (size_bytes <= kBlockBytes[size]) return {of_process().take_block(size), size_bytes};
  std::byte* const pages = map_pages(whole_pages(size_bytes));
  protect(pages, whole_pages(size_bytes));
  return {pages, size_bytes};
}

void SecretMemory::give_back(MutableBytes memory) noexcept {
  // A compiler would omit a plain fill of memory that is not read again.
  OPENSSL_cleanse(memory.data(), memory.size());
  if (memory.size() > kBlockBytes.back()) {
    munmap(memory.data(), whole_pages(memory.size()));
  } else if (Slab* const slab = Slab::of(memory.data()); slab->process == process_number()) {
    of_process().give_block(slab, memory.data());
  }
}

}  // namespace tendon::v0::detail
