// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <tendon/core/bytes.hpp>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// The memory of keys: pages that are never swapped (mlock), that no core file contains
/// (MADV_DONTDUMP), and that are zero in a forked child (MADV_WIPEONFORK).
///
///   size            place                                     of a slab's 8 KiB
///   <= 64 bytes     a block of a slab: a key, a secret, an IV  127 blocks
///   <= 1152 bytes   a block of a slab: an expanded key         7 blocks
///   more            pages of its own: the text of a file
///
/// Where libipsec-mb seals, a secure link has two large blocks and six small ones: 2.7 KiB. A lane
/// has the same.
///
/// Owns:    the slabs, permanently: a returned block is reused.
/// Threads: thread-safe.
/// Errors:  std::bad_alloc. Where RLIMIT_MEMLOCK forbids locking, pages are used unlocked, and the
///          log warns once.
/// Blocks:  never.
/// Cost:    a lock and a few loads; five system calls per slab or per separate pages.
class SecretMemory {
 public:
  SecretMemory() = default;
  SecretMemory(const SecretMemory&) = delete;
  SecretMemory& operator=(const SecretMemory&) = delete;

  static constexpr std::size_t kAlignment = 64;

  /// Returns zeros, aligned to kAlignment. Precondition: not empty.
  [[nodiscard]] static MutableBytes take(std::size_t size_bytes);
  /// Wipes memory from take(). A child keeps the address space of its parent's memory.
  static void give_back(MutableBytes memory) noexcept;

 private:
  struct Slab;
  static constexpr std::size_t kSizes = 2;

  [[nodiscard]] static SecretMemory& of_process();
  [[nodiscard]] static Slab* make_slab(std::size_t size);
  [[nodiscard]] std::byte* take_block(std::size_t size) TENDON_EXCLUDES(mutex_);
  void give_block(Slab* slab, const std::byte* block) noexcept TENDON_EXCLUDES(mutex_);

  Mutex mutex_;
  // The first slab with a free block, linked to the others.
  std::array<Slab*, kSizes> roomy_ TENDON_GUARDED_BY(mutex_) = {};
};

}  // namespace tendon::v0::detail
