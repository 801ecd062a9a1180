// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <vector>

#include "transport/message.hpp"
#include "transport/stream/bulk_queue.hpp"
#include "transport/stream/byte_stream.hpp"
#include "transport/stream/control_out.hpp"
#include "transport/stream/frame.hpp"

namespace tendon::v0::detail {

/// The sending half of the bulk lanes. Cuts bodies into frames and hands them to whichever lane has
/// room, one frame of each message in turn, straight from the user's memory.
///
/// The descriptor is posted once the peer has room for the body; a lent body's descriptor is posted
/// with its first frame. An op leaves the queue when the kernel has all its bytes, or when it is
/// withdrawn.
///
/// A lent body is requested when a socket has room for its first byte, or has taken all of the last
/// write. If the body no longer exists, its op leaves the queue and the peer hears nothing of it.
///
/// Owns:    a buffer of one frame for each lane, used only for strided or scattered bodies and for
///          messages that are withdrawn inside a frame. The streams belong to the caller.
/// Threads: under mutex(), which is locked before ControlOut's lock. Atomic counters need no lock.
/// Errors:  failure() holds the errno of the call that failed.
/// Blocks:  never.
/// Cost:    one write a frame.
class BulkOut {
 public:
  /// `peer_cap_bytes`: the peer's link_cap_bytes, which is the window of the link.
  BulkOut(ControlOut& control, std::uint64_t peer_cap_bytes);

  [[nodiscard]] Mutex& mutex() noexcept TENDON_RETURNS_LOCK(mutex_) { return mutex_; }

  [[nodiscard]] Result<void> add_lane(ByteStream& stream) TENDON_REQUIRES(mutex_);
  /// Adds an op behind the others. Its descriptor is sent when the peer has room for it.
  void enqueue(SendOp& op) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool holds(const SendOp& op) const noexcept TENDON_REQUIRES(mutex_) {
    return queue_.find(op) != nullptr;
  }
  /// Returns how many bytes of the op's body the sockets have taken; 0 if the op is not queued.
  [[nodiscard]] std::uint64_t written_bytes(const SendOp& op) const noexcept
      TENDON_REQUIRES(mutex_) {
    const BulkSend* const found = queue_.find(op);
    return found == nullptr ? 0 : found->written_bytes;
  }
  struct Progress {
    bool moved = false;  ///< bytes left
    bool more = false;   ///< the kernel may also take further ones now
  };
  /// Lets every lane write at most once.
  Progress pump() TENDON_REQUIRES(mutex_);
  /// Removes an op and tells the peer to drop it. A frame that has begun is finished from a copy,
  /// or with zeros if the body was lent.
  void withdraw(SendOp& op) TENDON_REQUIRES(mutex_);
  /// Withdraws the op of this lender and marks it `dropped`. False: it is not queued.
  bool drop(const LentSample& lent) TENDON_REQUIRES(mutex_);
  /// As in BulkQueue.
  [[nodiscard]] bool on_taken(std::uint64_t taken_bytes) noexcept TENDON_REQUIRES(mutex_) {
    return queue_.on_taken(taken_bytes);
  }
  [[nodiscard]] std::uint64_t untaken_bytes() const noexcept { return queue_.untaken_bytes(); }
  /// Forgets all ops and lanes. The streams are about to be destroyed.
  void stop() TENDON_REQUIRES(mutex_);

  /// True while messages of this pipe wait here with their descriptors: nothing may overtake them.
  [[nodiscard]] bool holds_descriptor_of(std::uint32_t pipe) const noexcept
      TENDON_REQUIRES(mutex_) {
    return queue_.holds_descriptor_of(pipe);
  }
  [[nodiscard]] std::uint32_t waiting_descriptors() const noexcept {
    return queue_.waiting_descriptors();
  }
  [[nodiscard]] bool idle() const noexcept {
    return unfinished_.load(std::memory_order_relaxed) == 0;
  }
  /// True if this lane has something to write. Lanes are numbered in the order of add_lane().
  [[nodiscard]] bool lane_waits(std::size_t lane) const noexcept TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t sent_messages() const noexcept {
    return sent_messages_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept {
    return sent_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] int failure() const noexcept { return failure_.load(std::memory_order_relaxed); }

 private:
  struct Lane {
    explicit Lane(ByteStream& into) : stream(into) {}
    ByteStream& stream;
    std::size_t inside_bytes = 0;  // in the stream
    bool busy = false;             // inside a frame
    bool took_all = true;          // the last write was complete
    enum class Source : std::uint8_t { user, buffer, zeros };
    Source source = Source::user;  // where the bytes of the frame lie
    SendOp* op = nullptr;          // null: the frame is finished without its op
    FrameHeader header;
    std::uint64_t written_bytes = 0;  // includes the header
    Storage buffer;
  };

  void admit() TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool stage(BulkSend& sending) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool begin(BulkSend& sending) TENDON_REQUIRES(mutex_);
  [[nodiscard]] BulkSend* next(const Lane& lane) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool assign(Lane& lane) TENDON_REQUIRES(mutex_);
  static void begin_frame(Lane& lane, BulkSend& sending);
  void begin_tail(Lane& lane, SendOp& op) TENDON_REQUIRES(mutex_);
  Progress write(Lane& lane) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t hand_over(Lane& lane, std::span<const iovec> pieces)
      TENDON_REQUIRES(mutex_);
  bool push_out(Lane& lane) TENDON_REQUIRES(mutex_);
  void forget(const SendOp& op) TENDON_REQUIRES(mutex_);
  void recount() noexcept TENDON_REQUIRES(mutex_);

  Mutex mutex_;
  ControlOut& control_;
  std::vector<std::unique_ptr<Lane>> lanes_ TENDON_GUARDED_BY(mutex_);
  BulkQueue queue_;  // under mutex_, except for its counters
  std::atomic<std::size_t> unfinished_{0};
  std::atomic<std::uint64_t> sent_messages_{0};
  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<int> failure_{0};
};

}  // namespace tendon::v0::detail
