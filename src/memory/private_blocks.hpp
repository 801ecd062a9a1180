// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <vector>

namespace tendon::v0::detail {

/// Private memory for whole messages. The C library keeps freed memory below a block that is in
/// use: a program that kept a thousand messages and dropped them would keep their memory. Here the
/// pages of free blocks return to the system.
///
///   new  -- allocate() --> used -- release() --> warm -- beyond kWarmBytes --> cold
///   warm, cold  -- allocate() --> used
///
/// A block of up to kLargeBytes is cut from a mapping of kMappingBytes, which keeps its addresses.
/// A larger one is a mapping of its own, which ends when the block would be cold.
///
/// Owns:    the mappings.
/// Threads: thread-safe; one for each process.
/// Errors:  none: no block if the system has no memory.
/// Blocks:  never.
/// Cost:    a lock; for a block that is not warm the first touch of its pages.
class PrivateBlocks {
 public:
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{32} << 10;
  static constexpr std::uint64_t kLargeBytes = std::uint64_t{4} << 20;
  static constexpr std::uint64_t kMappingBytes = std::uint64_t{8} << 20;
  /// Free blocks up to so many bytes keep their pages: messages of one size follow each other.
  static constexpr std::uint64_t kWarmBytes = std::uint64_t{64} << 20;

  [[nodiscard]] static PrivateBlocks& of_process();

  /// Allocates at least kLeastBytes, at most 2^63; the last owner releases it. Null: there is no
  /// memory.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::uint64_t size_bytes)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t warm_bytes() TENDON_EXCLUDES(mutex_);

 private:
  // 32 KiB, 64 KiB ... 4 MiB, and larger ones.
  static constexpr std::size_t kSizes = 8;
  static constexpr std::size_t kLarge = kSizes;

  struct Block {
    std::byte* data = nullptr;
    std::uint64_t size_bytes = 0;
    std::size_t size_class = 0;
    std::uint64_t touched_bytes = 0;  // may have pages
    std::uint64_t freed = 0;          // the order of release
  };
  struct Free {
    std::deque<Block> warm;        // the oldest first
    std::vector<std::byte*> cold;  // with room for all that were cut
    std::size_t cut = 0;
  };

  [[nodiscard]] std::optional<Block> find(std::size_t size_class, std::uint64_t size_bytes)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] static std::byte* map(std::uint64_t size_bytes);
  [[nodiscard]] std::optional<Block> cut(std::size_t size_class) TENDON_EXCLUDES(mutex_);
  /// Returns pages that the block's former user has touched and this one does not need.
  static void take_into_use(Block& block, std::uint64_t size_bytes);
  void release(const Block& block) noexcept TENDON_EXCLUDES(mutex_);
  /// The oldest warm block, if there are too many.
  [[nodiscard]] std::optional<Block> take_excess() TENDON_EXCLUDES(mutex_);
  void cool(const Block& block) noexcept TENDON_EXCLUDES(mutex_);

  Mutex mutex_;
  std::array<Free, kSizes + 1> free_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t warm_bytes_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t last_freed_ TENDON_GUARDED_BY(mutex_) = 0;
};

}  // namespace tendon::v0::detail
