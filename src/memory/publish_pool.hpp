// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "memory/death.hpp"
#include "memory/hold_ledger.hpp"
#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {

class PublishPool;

/// The owner's hold of one use of a slot, shared by history, local readers and sends over sockets.
/// It is filled before any reader sees it. Dropping the last share drops the hold.
/// Threads: those that share it synchronise the bytes.
class PublishedSlot {
 public:
  PublishedSlot(std::shared_ptr<PublishPool> pool, Slot slot)
      : pool_(std::move(pool)), slot_(slot) {}
  PublishedSlot(const PublishedSlot&) = delete;
  PublishedSlot& operator=(const PublishedSlot&) = delete;
  ~PublishedSlot();

  /// The name for readers: the segment is PublishPool::kFirstSegment or above.
  [[nodiscard]] SlotId id() const noexcept { return slot_.id; }
  [[nodiscard]] MutableBytes memory() const noexcept { return slot_.memory; }
  [[nodiscard]] PublishPool& pool() const noexcept { return *pool_; }

 private:
  std::shared_ptr<PublishPool> pool_;
  Slot slot_;
};

struct PublishPoolStats : HoldStats {
  SlotPoolStats slots;  ///< loaned_count: in use, by this process or by links
};

/// Slots that many links may read at once, and the ledger of their holds, which alone says when a
/// slot is free.
///
/// Owns:    segments that it alone may write, with their descriptors: links join later.
/// Threads: thread-safe; the lock of the ledger, taken inside of a link's sending lock, then that
///          of the slots.
/// Errors:  message_too_large, resource_exhausted (says what holds most).
/// Blocks:  never.
/// Cost:    that of the ledger.
class PublishPool : public std::enable_shared_from_this<PublishPool> {
 public:
  /// Segment numbers from here on are not those of a link's own slots.
  static constexpr std::uint32_t kFirstSegment = std::uint32_t{1} << 31;
  /// Places in its return ring that a link keeps for holds, and so the most that it has.
  static constexpr std::uint32_t kMaxHoldsPerLink = 2048;

  explicit PublishPool(std::uint64_t cap_bytes);

  /// A slot of at least `size_bytes`, with the owner's hold.
  [[nodiscard]] Result<std::shared_ptr<PublishedSlot>> acquire(std::uint64_t size_bytes);
  /// As SlotPool::prefault().
  template <class KeepGoing>
  Result<void> prefault(std::uint64_t size_bytes, std::uint32_t slot_count, KeepGoing keep_going) {
    return slots_.prefault(size_bytes, slot_count, keep_going);
  }
  /// The segment of a slot, named as in its id.
  [[nodiscard]] SegmentInfo segment_of(const PublishedSlot& slot);

  // The same calls of the ledger, after which a slot without holds may be used again
  using LinkNumber = HoldLedger::LinkNumber;
  using Window = HoldLedger::Window;
  using Reads = HoldLedger::Reads;
  static constexpr std::uint64_t kWholeShare = HoldLedger::kWholeShare;
  /// `places`: at most kMaxHoldsPerLink count.
  [[nodiscard]] LinkNumber add_link(std::string name, std::uint32_t places,
                                    Reads reads = Reads::in_place) {
    return holds_.add_link(std::move(name), std::min(places, kMaxHoldsPerLink), reads);
  }
  /// A link beyond its share gets a copy instead.
  [[nodiscard]] Window give(LinkNumber link, const PublishedSlot& slot,
                            std::uint64_t share_bytes = kWholeShare) {
    return holds_.give(link, slot.id(), share_bytes);
  }
  void take_back(LinkNumber link, SlotId id) {
    if (holds_.take_back(link, id) == HoldLedger::Left::none) release(id);
  }
  /// False (and counted) when the ledger knows no such hold.
  bool take_return(LinkNumber link, SlotId id) {
    const HoldLedger::Left left = holds_.take_return(link, id);
    if (left == HoldLedger::Left::none) release(id);
    return left != HoldLedger::Left::as_was;
  }
  void end_link(LinkNumber link, Death death);
  void retire_link(LinkNumber link) { holds_.retire_link(link); }
  [[nodiscard]] std::uint64_t holds_of(LinkNumber link) const { return holds_.holds_of(link); }

  // Memory that sends over sockets keep
  /// Slots that readers over sockets hold, each once, and the copies sent instead [bytes]. No lock:
  /// each publish asks, even if nobody reads over sockets.
  [[nodiscard]] std::uint64_t sending_bytes() const noexcept {
    return holds_.sending_bytes() + copied_bytes_.load();
  }
  void count_copy(std::uint64_t size_bytes) noexcept { copied_bytes_ += size_bytes; }
  void uncount_copy(std::uint64_t size_bytes) noexcept { copied_bytes_ -= size_bytes; }

  [[nodiscard]] PublishPoolStats stats() const;
  [[nodiscard]] std::uint64_t cap_bytes() const noexcept { return slots_.cap_bytes(); }

 private:
  friend class PublishedSlot;

  void drop_owner(SlotId id);
  void release(SlotId id) noexcept;

  SlotPool slots_;
  HoldLedger holds_;
  std::atomic<std::uint64_t> copied_bytes_{0};
};

}  // namespace tendon::v0::detail
