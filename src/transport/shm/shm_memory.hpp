// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <vector>

#include "core/fd.hpp"
#include "cuda/registered_slots.hpp"
#include "memory/segment.hpp"
#include "transport/shm/control_block.hpp"

namespace tendon::v0::detail {

/// For counters with one writer at a time: readers need no lock, the writer no atomic addition.
template <class Count>
void add(std::atomic<Count>& counter, std::uint64_t count) noexcept {
  counter.store(static_cast<Count>(counter.load(std::memory_order_relaxed) + count),
                std::memory_order_relaxed);
}

/// The parts of a shm link that received views need after its pipe, its link and its Context have
/// ended: the mappings, the ring for returns, the peer's doorbell.
///
/// Owns:    both control blocks and the peer's segments as mapped here.
/// Threads: give_back() from any thread; lend() under the link's receive lock.
/// Errors:  none. A return that finds its ring full is dropped and counted: the owner has lent more
///          slots than it has places for, and loses this one.
/// Blocks:  never.
/// Cost:    a lock, a 16-byte entry, one store.
class ShmMemory {
 public:
  ShmMemory(std::shared_ptr<Segment> mine, std::shared_ptr<Segment> theirs, OwnedFd peer_doorbell,
            std::uint64_t peer_cap_bytes);

  [[nodiscard]] ControlBlock& mine() const noexcept { return *mine_block_; }
  [[nodiscard]] ControlBlock& theirs() const noexcept { return *their_block_; }
  [[nodiscard]] SleepWord<> peer_sleep() const noexcept {
    return SleepWord<>(their_block_->sleeping);
  }
  /// Wakes the peer from its epoll. Counted.
  void ring_doorbell() noexcept;
  /// The same if it sleeps and waits for this: one of SleepWord's.
  void wake(std::uint64_t what) noexcept {
    if (peer_sleep().asleep(what)) ring_doorbell();
  }
  /// Stops waking the peer after the end of the link, and closes the doorbell. Not while there are
  /// holds here: the peer waits for their returns.
  void hang_up() noexcept;
  [[nodiscard]] std::uint64_t doorbell_count() const noexcept { return doorbells_.load(); }
  [[nodiscard]] std::uint64_t dropped_returns() const noexcept { return dropped_returns_.load(); }

  /// Lends a received slot to the user, unless fewer than two slots of its class, or less than half
  /// of the peer's cap, would stay in circulation.
  [[nodiscard]] bool lend(std::uint64_t slot_bytes) noexcept;
  /// The number of lent slots and holds that were not returned.
  [[nodiscard]] std::uint64_t lent_count() const noexcept;
  /// Notes that a slot of the peer's publish pool is held here until give_back().
  void add_hold() noexcept { holds_.fetch_add(1, std::memory_order_relaxed); }
  /// `lent_bytes` are those that lend() has lent of this slot; 0: none.
  void give_back(SlotId id, std::uint64_t lent_bytes) noexcept;

 private:
  std::shared_ptr<Segment> mine_;
  std::shared_ptr<Segment> theirs_;
  ControlBlock* mine_block_;
  ControlBlock* their_block_;
  Mutex doorbell_mutex_;
  OwnedFd peer_doorbell_ TENDON_GUARDED_BY(doorbell_mutex_);
  const std::uint64_t peer_cap_bytes_;
  const std::uint32_t process_;
  std::atomic<std::uint64_t> doorbells_{0};
  std::atomic<std::uint64_t> dropped_returns_{0};
  std::atomic<std::uint64_t> holds_{0};

  Mutex return_mutex_;
  RingProducer<ReturnEntry> returns_ TENDON_GUARDED_BY(return_mutex_);

  // By size class. Lent slots are counted under the receive lock, returned ones under
  // return_mutex_; the user has the difference.
  struct Lent {
    std::atomic<std::uint64_t> bytes{0};
    std::array<std::atomic<std::uint32_t>, 64> count{};
    void add_one(std::uint64_t slot_bytes) noexcept;
  };
  Lent lent_;
  Lent came_back_;
};

/// A segment of the peer's slots, mapped here.
struct AttachedSegment {
  std::shared_ptr<ShmMemory> link;  ///< receives its slots back
  std::shared_ptr<Segment> memory;
  std::shared_ptr<cuda::RegisteredSlots> registered;  ///< null: the slots are too small
  std::uint64_t slot_bytes = 0;
  std::uint32_t slot_count = 0;
  Access access = Access::read_write;  ///< read_only: of the publish pool
};

/// One received slot. Its destructor returns the slot to the sender.
class ReceivedSlot {
 public:
  ReceivedSlot(std::shared_ptr<const AttachedSegment> segment, SlotId id)
      : segment_(std::move(segment)), id_(id) {
    if (segment_->access == Access::read_only) segment_->link->add_hold();
  }
  ReceivedSlot(const ReceivedSlot&) = delete;
  ReceivedSlot& operator=(const ReceivedSlot&) = delete;
  ~ReceivedSlot() { segment_->link->give_back(id_, lent_bytes_); }

  /// The rule for link slots. A receiver may keep a slot of the publish pool that it is shown.
  [[nodiscard]] bool lend() noexcept {
    if (segment_->access == Access::read_only) return true;
    if (!segment_->link->lend(segment_->slot_bytes)) return false;
    lent_bytes_ = segment_->slot_bytes;
    return true;
  }

 private:
  std::shared_ptr<const AttachedSegment> segment_;
  SlotId id_;
  std::uint64_t lent_bytes_ = 0;
};

}  // namespace tendon::v0::detail
