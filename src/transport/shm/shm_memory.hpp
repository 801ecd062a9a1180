// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fd.hpp"
#include "memory/segment.hpp"
#include "transport/shm/control_block.hpp"

namespace tendon::v0::detail {

/// For counters with one writer at a time: readers need no lock, the writer no atomic addition.
template <class Count>
void add(std::atomic<Count>& counter, std::uint64_t count) noexcept {
  counter.store(static_cast<Count>(counter.load(std::memory_order_relaxed) + count),
                std::memory_order_relaxed);
}

/// What received views need of a shm link after its pipe, its link and its Context are gone: the
/// mappings, the ring to give slots back by, the peer's doorbell.
///
/// Owns:    both control blocks and the peer's segments as mapped here.
/// Threads: give_back() from any thread; lend() under the link's receive lock.
/// Errors:  none; a return that cannot be written (the link is over) is dropped.
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
  /// Wakes the peer out of its epoll. Counted.
  void ring_doorbell() noexcept;
  /// The link is over: nobody is woken any more, and the doorbell is closed.
  void hang_up() noexcept;
  [[nodiscard]] std::uint64_t doorbell_count() const noexcept { return doorbells_.load(); }

  /// Lends a received slot to the user, unless fewer than two slots of its class, or less than half
  /// of the peer's cap, would stay in circulation.
  [[nodiscard]] bool lend(std::uint64_t slot_bytes) noexcept;
  /// `lent` as lend() answered for this slot.
  void give_back(SlotId id, std::uint64_t slot_bytes, bool lent) noexcept;

 private:
  std::shared_ptr<Segment> mine_;
  std::shared_ptr<Segment> theirs_;
  ControlBlock* mine_block_;
  ControlBlock* their_block_;
  Mutex doorbell_mutex_;
  OwnedFd peer_doorbell_ TENDON_GUARDED_BY(doorbell_mutex_);
  const std::uint64_t peer_cap_bytes_;
  const std::uint32_t epoch_;
  std::atomic<std::uint64_t> doorbells_{0};

  Mutex return_mutex_;
  RingProducer<ReturnEntry> returns_ TENDON_GUARDED_BY(return_mutex_);

  // By size class. What was lent is counted up under the receive lock, what came back under
  // return_mutex_; the difference is with the user.
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
  std::shared_ptr<ShmMemory> link;  ///< where its slots are given back
  std::shared_ptr<Segment> memory;
  std::uint64_t slot_bytes = 0;
  std::uint32_t slot_count = 0;
};

/// One received slot. Its destructor gives the slot back to the sender.
class ReceivedSlot {
 public:
  ReceivedSlot(std::shared_ptr<const AttachedSegment> segment, SlotId id)
      : segment_(std::move(segment)), id_(id) {}
  ReceivedSlot(const ReceivedSlot&) = delete;
  ReceivedSlot& operator=(const ReceivedSlot&) = delete;
  ~ReceivedSlot() { segment_->link->give_back(id_, segment_->slot_bytes, lent_); }

  [[nodiscard]] bool lend() noexcept { return lent_ = segment_->link->lend(segment_->slot_bytes); }

 private:
  std::shared_ptr<const AttachedSegment> segment_;
  SlotId id_;
  bool lent_ = false;
};

}  // namespace tendon::v0::detail
