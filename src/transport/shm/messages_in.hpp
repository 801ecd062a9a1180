// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <tendon/core/result.hpp>

#include "transport/message.hpp"
#include "transport/private_body.hpp"
#include "transport/shm/control_block.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {

/// The receiving half of a shm link: the peer's ring of descriptors and its arena of small bodies.
///
/// Owns:    nothing.
/// Threads: the link's receive lock is held for every call, except where a comment says otherwise.
/// Errors:  corrupt() when the peer's counter is invalid: the link must be failed.
/// Blocks:  never.
/// Cost:    an entry is copied out once; the peer's sleep word is read once per kRoomStep.
class MessagesIn {
 public:
  /// A step of freed space, in arena bytes. The peer sleeps only while ring or arena is full, so a
  /// look once per step, not at every message, cannot miss it.
  static constexpr std::uint64_t kRoomStep = ControlBlock::kArenaBytes / 8;

  /// `memory` outlives it.
  explicit MessagesIn(ShmMemory& memory)
      : memory_(memory), ring_(memory.theirs().messages, memory.theirs().message_entries) {}

  /// A glance, from any thread. It also fetches the next body into the cache with its descriptor.
  [[nodiscard]] bool has_entry() const noexcept {
    SharedMemoryPolicy::prefetch(
        &memory_.theirs().arena[next_inline_.load(std::memory_order_relaxed)]);
    return ring_.has_entry();
  }
  /// As in RingConsumer.
  [[nodiscard]] bool pop(Descriptor& descriptor) { return ring_.pop(descriptor); }
  void unpop() { ring_.unpop(); }
  void release() { ring_.release(); }
  [[nodiscard]] bool corrupt() const { return ring_.corrupt(); }

  /// The inline body of a checked message, copied out of the arena.
  [[nodiscard]] Result<IncomingBody> body_of(const Descriptor& descriptor) {
    const std::uint64_t size = descriptor.body_bytes();
    // size <= kMaxInlineBytes: check_descriptor()
    if (descriptor.offset > ControlBlock::kArenaBytes - size) {
      return Error{ErrorCode::protocol_violation, "shm.receive",
                   "an inline body outside the arena"};
    }
    IncomingBody body = make_private_body(size);
    next_inline_.store((descriptor.offset + size + 63) / 64 * 64 % ControlBlock::kArenaBytes,
                       std::memory_order_relaxed);
    room_made_ += size;
    std::memcpy(body.data, memory_.theirs().arena.data() + descriptor.offset, size);
    return body;
  }
  /// Notes that so many were popped and released: the peer may sleep for want of room.
  void wake_for_room(std::uint64_t count) noexcept {
    room_made_ += count * (ControlBlock::kArenaBytes / ControlBlock::kMessageCount);
    if (room_made_ < kRoomStep) return;
    room_made_ = 0;
    memory_.wake(SleepWord<>::kForMessages);
  }

  /// Counts a received message. In a message without a body, sizes are other numbers.
  void note(const Descriptor& descriptor) noexcept {
    if (!has_body(descriptor.kind)) return;
    add(message_count_, 1);
    add(body_bytes_, descriptor.body_bytes());
  }
  /// The received messages and bytes. From any thread.
  [[nodiscard]] std::uint64_t message_count() const noexcept {
    return message_count_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t body_bytes() const noexcept {
    return body_bytes_.load(std::memory_order_relaxed);
  }

 private:
  ShmMemory& memory_;
  RingConsumer<Descriptor> ring_;
  std::atomic<std::uint64_t> next_inline_{0};  // the probable place of the next body in the arena
  // In arena bytes, since the last look at the peer's sleep word.
  std::uint64_t room_made_ = 0;
  std::atomic<std::uint64_t> message_count_{0};
  std::atomic<std::uint64_t> body_bytes_{0};
};

}  // namespace tendon::v0::detail
