// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/stage_clock.hpp"
#include "transport/message.hpp"
#include "transport/shm/control_block.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {

/// The sending half of a shm link: descriptors in this side's ring, small bodies in its arena.
/// show() makes placed messages visible; wake() rings the peer if it sleeps. Words of control wait
/// here when there is no room, and are first when there is.
///
/// Owns:    the waiting words.
/// Threads: under one lock, except where a comment says otherwise.
/// Errors:  protocol_violation, without the peer's name, once broken(): the link must be failed.
/// Blocks:  never.
/// Cost:    one entry and one copy of a small body; the peer's counter is read only when ring or
///          arena looks full.
class MessagesOut {
 public:
  /// `memory` outlives it.
  explicit MessagesOut(ShmMemory& memory);

  /// Places a message with its body beside it in the arena.
  [[nodiscard]] Result<Sent> place_small(const SendOp& op) {
    return place(op.descriptor, &op, {}, room_of(op.share));
  }
  /// Places a message whose body, if any, lies in a slot.
  [[nodiscard]] Result<Sent> place(const Descriptor& descriptor, RingShare share) {
    return place(descriptor, nullptr, {}, room_of(share));
  }
  void show();
  void wake() noexcept { memory_.wake(SleepWord<>::kForMessages); }
  void show_and_wake() {
    TENDON_STAGE(placed);
    show();
    TENDON_STAGE(shown);
    wake();
    TENDON_STAGE(looked_at_sleep);
  }

  /// Posts a word of control: shown at once, or as soon as there is room. It finds room where
  /// messages find none.
  void post(const Descriptor& descriptor, Bytes body);
  /// Publishes posted words first. False while some are left.
  bool flush();
  /// Bytes of waiting words. From any thread.
  [[nodiscard]] std::size_t posted_bytes() const noexcept { return posted_bytes_.load(); }

  /// True if there was no room, and the peer has consumed something since. From any thread.
  [[nodiscard]] bool room_came() const noexcept {
    return room_since(blocked_at_head_.load(std::memory_order_relaxed));
  }
  /// The same, once. From any thread.
  bool use_up_room() noexcept {
    std::uint64_t blocked_at = blocked_at_head_.load(std::memory_order_relaxed);
    return room_since(blocked_at) &&
           blocked_at_head_.compare_exchange_strong(blocked_at, kNotBlocked);
  }

  /// Stops placing, because the peer's counters are invalid, here or in another ring.
  void break_off() noexcept { broken_ = true; }
  /// From any thread.
  [[nodiscard]] bool broken() const noexcept { return broken_; }

  /// The sent messages. From any thread.
  [[nodiscard]] std::uint64_t message_count() const noexcept {
    return message_count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t body_bytes() const noexcept {
    return body_bytes_.load(std::memory_order_relaxed);
  }

 private:
  struct Posted {
    Descriptor descriptor;
    std::vector<std::byte> body;
  };
  // The free space that is left in ring and arena: by messages, so that words of control have room,
  // and by normal samples, so that those of priority `control` have some too.
  enum class Room : std::uint64_t { for_normal_samples = 192, for_messages = 64, for_control = 0 };
  [[nodiscard]] static constexpr Room room_of(RingShare share) noexcept {
    return share == RingShare::whole ? Room::for_messages : Room::for_normal_samples;
  }
  // No possible count of consumed entries: nobody waits for room.
  static constexpr std::uint64_t kNotBlocked = ~std::uint64_t{0};

  [[nodiscard]] Result<Sent> place(Descriptor descriptor, const SendOp* op, Bytes body, Room room);
  [[nodiscard]] bool place_inline(Descriptor& descriptor, Room room);
  [[nodiscard]] bool publish(const Posted& posted);
  [[nodiscard]] bool room_since(std::uint64_t blocked_at) const noexcept {
    return blocked_at != kNotBlocked &&
           memory_.mine().messages.head.load(std::memory_order_acquire) != blocked_at;
  }

  ShmMemory& memory_;
  RingProducer<Descriptor> ring_;
  std::array<std::uint64_t, ControlBlock::kMessageCount> arena_end_{};  // by ring place
  std::uint64_t arena_tail_ = 0;
  std::uint64_t arena_head_ = 0;  // everything before it was consumed
  std::deque<Posted> posted_;
  std::atomic<std::size_t> posted_bytes_{0};
  // The peer's count of consumed entries when there was no room.
  std::atomic<std::uint64_t> blocked_at_head_{kNotBlocked};
  std::atomic<bool> broken_{false};
  std::atomic<std::uint64_t> message_count_{0};
  std::atomic<std::uint64_t> body_bytes_{0};
};

}  // namespace tendon::v0::detail
