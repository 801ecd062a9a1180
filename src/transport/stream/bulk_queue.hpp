// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "transport/message.hpp"
#include "transport/stream/frame.hpp"

namespace tendon::v0::detail {

/// An op of a link over streams, with the progress of its frames.
///
///   enqueued -> admitted   the peer has room for the body
///            -> staged     its descriptor is out
struct BulkSend {
  enum class State : std::uint8_t { enqueued, admitted, staged };
  SendOp* op;
  FrameCut cut;
  State state = State::enqueued;
  std::uint64_t begun_bytes = 0;    ///< of frames that a lane has begun
  std::uint64_t written_bytes = 0;  ///< of frames that a socket has taken completely

  /// True if a lane may begin a frame. The tail waits until the kernel has the frames before it.
  [[nodiscard]] bool has_frame() const noexcept {
    return state != State::enqueued &&
           (begun_bytes < cut.tail_offset() || written_bytes == cut.tail_offset());
  }
};

/// The ops whose bodies travel in frames, in the order of add(), and the window of the link. The
/// window counts the bytes that were announced to the peer and not yet taken by its program.
///
/// Owns:    no op.
/// Threads: under one lock of its owner. Atomic counters need no lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a scan of the ops.
class BulkQueue {
 public:
  /// `peer_cap_bytes`: the peer's link_cap_bytes, which is the window of the link.
  explicit BulkQueue(std::uint64_t peer_cap_bytes) : peer_cap_bytes_(peer_cap_bytes) {}

  /// Invalidates pointers to other ops, as remove() does.
  void add(SendOp& op);
  /// Null: the op is not here.
  [[nodiscard]] BulkSend* find(const SendOp& op) noexcept;
  [[nodiscard]] const BulkSend* find(const SendOp& op) const noexcept;
  [[nodiscard]] BulkSend* find(const LentSample& lent) noexcept;
  void remove(const SendOp& op);
  void clear();

  /// Admits the first op that waits for room and returns it; null if none waits or there is no
  /// room. Ops are admitted in order, so that the descriptors of one pipe keep their order.
  [[nodiscard]] BulkSend* admit();
  /// Notes that the descriptor of this op was posted.
  void stage(BulkSend& sending) noexcept;
  /// Notes how many bytes of bodies the peer's program has taken in total. False: more than were
  /// announced.
  [[nodiscard]] bool on_taken(std::uint64_t taken_bytes) noexcept;

  // The ops take turns, one frame at a time.
  [[nodiscard]] std::size_t size() const noexcept { return ops_.size(); }
  /// Returns the op that is `step` places behind the one whose turn it is.
  [[nodiscard]] BulkSend& in_turn(std::size_t step) noexcept {
    return ops_[(turn_ + step) % ops_.size()];
  }
  /// Ends the turn of the op at `step`: the one behind it is next.
  void took_turn(std::size_t step) noexcept { turn_ = (turn_ + step) % ops_.size() + 1; }

  [[nodiscard]] bool has_frame() const noexcept;
  [[nodiscard]] bool holds_descriptor_of(std::uint32_t pipe) const noexcept;
  /// Counts the ops that are not staged. Needs no lock.
  [[nodiscard]] std::uint32_t waiting_descriptors() const noexcept {
    return waiting_descriptors_.load(std::memory_order_relaxed);
  }
  /// Counts the bytes that were admitted and that the peer has not reported as taken. Needs no
  /// lock.
  [[nodiscard]] std::uint64_t untaken_bytes() const noexcept {
    return untaken_bytes_.load(std::memory_order_relaxed);
  }

 private:
  void count_untaken() noexcept {
    untaken_bytes_.store(admitted_bytes_ - taken_bytes_, std::memory_order_relaxed);
  }

  const std::uint64_t peer_cap_bytes_;
  std::vector<BulkSend> ops_;
  std::size_t turn_ = 0;
  std::uint32_t open_count_ = 0;       // ops that are admitted
  std::uint64_t admitted_bytes_ = 0;   // since the link exists
  std::uint64_t announced_bytes_ = 0;  // the staged part of them, which the peer knows of
  std::uint64_t taken_bytes_ = 0;
  std::atomic<std::uint64_t> untaken_bytes_{0};  // admitted_bytes_ - taken_bytes_
  std::atomic<std::uint32_t> waiting_descriptors_{0};
};

}  // namespace tendon::v0::detail
