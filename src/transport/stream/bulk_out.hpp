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

/// The sending half of the bulk lanes: cuts bodies into frames and deals them out, one frame of
/// each message in turn, to whichever lane has room, straight from the user's memory.
///
/// A descriptor is posted once the peer has room for the body, or with the first frame of a body
/// that is lent. An op has gone when all its bytes are with the kernel, or it was withdrawn.
///
/// A body that is lent is asked for when a socket has room for its first byte, or has taken all of
/// the last write. One that is gone by then leaves the queue without a word.
///
/// Owns:    a buffer of one frame a lane (touched only for strided or scattered bodies and for
///          messages that are withdrawn inside a frame); not the streams.
/// Threads: under mutex(), which comes before ControlOut's lock; what is atomic without it.
/// Errors:  failure() holds the errno of the call that failed.
/// Blocks:  never.
/// Cost:    one write a frame.
class BulkOut {
 public:
  /// `peer_cap_bytes`: the peer's link_cap_bytes, which is the window of the link.
  BulkOut(ControlOut& control, std::uint64_t peer_cap_bytes);

  [[nodiscard]] Mutex& mutex() noexcept TENDON_RETURNS_LOCK(mutex_) { return mutex_; }

  [[nodiscard]] Result<void> add_lane(ByteStream& stream) TENDON_REQUIRES(mutex_);
  /// Puts an op behind the others. Its descriptor goes out when the peer has room for it.
  void enqueue(SendOp& op) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool holds(const SendOp& op) const noexcept TENDON_REQUIRES(mutex_) {
    return queue_.find(op) != nullptr;
  }
  /// How much of its body the sockets have taken; 0 where it is not held.
  [[nodiscard]] std::uint64_t written_bytes(const SendOp& op) const noexcept
      TENDON_REQUIRES(mutex_) {
    const BulkSend* const found = queue_.find(op);
    return found == nullptr ? 0 : found->written_bytes;
  }
  struct Progress {
    bool moved = false;  ///< bytes went out
    bool more = false;   ///< and the kernel may take further ones now
  };
  /// Lets every lane write at most once.
  Progress pump() TENDON_REQUIRES(mutex_);
  /// Takes an op back. The peer is told to drop it; a frame that was begun is finished from a copy,
  /// or with zeros where the body was lent.
  void withdraw(SendOp& op) TENDON_REQUIRES(mutex_);
  /// The same for the op of this lender; its sender finds it `dropped`. False: it is not here.
  bool drop(const LentSample& lent) TENDON_REQUIRES(mutex_);
  /// As those of BulkQueue.
  [[nodiscard]] bool on_taken(std::uint64_t taken_bytes) noexcept TENDON_REQUIRES(mutex_) {
    return queue_.on_taken(taken_bytes);
  }
  [[nodiscard]] std::uint64_t untaken_bytes() const noexcept { return queue_.untaken_bytes(); }
  /// Forgets all ops and lanes: the streams are about to go.
  void stop() TENDON_REQUIRES(mutex_);

  /// Messages of this pipe wait here with their descriptors: nothing may overtake them.
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
  /// Has this lane something to write? Lanes are numbered as they were added.
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
    std::size_t inside_bytes = 0;  // the stream
    bool busy = false;             // inside a frame
    bool took_all = true;          // of the last write
    enum class Source : std::uint8_t { user, buffer, zeros };
    Source source = Source::user;  // of the bytes of its frame
    SendOp* op = nullptr;          // null: the frame is finished without its op
    FrameHeader header;
    std::uint64_t written_bytes = 0;  // header included
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
  BulkQueue queue_;  // under mutex_, but for its counts
  std::atomic<std::size_t> unfinished_{0};
  std::atomic<std::uint64_t> sent_messages_{0};
  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<int> failure_{0};
};

}  // namespace tendon::v0::detail
