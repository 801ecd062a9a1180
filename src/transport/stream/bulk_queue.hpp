// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "transport/message.hpp"
#include "transport/stream/frame.hpp"

namespace tendon::v0::detail {

/// An op of a link over streams, and how far its frames are.
///
///   enqueued -> admitted   the peer has room for the body
///            -> staged     its descriptor is out
struct BulkSend {
  enum class State : std::uint8_t { enqueued, admitted, staged };
  SendOp* op;
  FrameCut cut;
  State state = State::enqueued;
  std::uint64_t begun_bytes = 0;    ///< of frames that a lane has begun
  std::uint64_t written_bytes = 0;  ///< of frames that a socket has taken whole

  /// May a lane begin one? The tail waits until the frames before it are with the kernel.
  [[nodiscard]] bool has_frame() const noexcept {
    return state != State::enqueued &&
           (begun_bytes < cut.tail_offset() || written_bytes == cut.tail_offset());
  }
};

/// The ops whose bodies travel in frames, in the order in which they came, and the window of the
/// link: what was announced to the peer and not taken by its program.
///
/// Owns:    no op.
/// Threads: under one lock of its owner; what is atomic without it.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look over the ops.
class BulkQueue {
 public:
  /// `peer_cap_bytes`: the peer's link_cap_bytes, which is the window of the link.
  explicit BulkQueue(std::uint64_t peer_cap_bytes) : peer_cap_bytes_(peer_cap_bytes) {}

  /// Pointers to others are invalid from here on, as after remove().
  void add(SendOp& op);
  /// Null: it is not here.
  [[nodiscard]] BulkSend* find(const SendOp& op) noexcept;
  [[nodiscard]] const BulkSend* find(const SendOp& op) const noexcept;
  [[nodiscard]] BulkSend* find(const LentSample& lent) noexcept;
  void remove(const SendOp& op);
  void clear();

  /// The first that waits for room, admitted now; null: none waits, or there is no room. In order,
  /// so that the descriptors of one pipe stay in theirs.
  [[nodiscard]] BulkSend* admit();
  /// Its descriptor is out.
  void stage(BulkSend& sending) noexcept;
  /// The peer's program has taken so many bytes of bodies, in total. False: more than were
  /// announced.
  [[nodiscard]] bool on_taken(std::uint64_t taken_bytes) noexcept;

  // Turns: each op has a frame in turn.
  [[nodiscard]] std::size_t size() const noexcept { return ops_.size(); }
  /// That which is `step` behind the one whose turn it is.
  [[nodiscard]] BulkSend& in_turn(std::size_t step) noexcept {
    return ops_[(turn_ + step) % ops_.size()];
  }
  /// That one had its turn: the one behind it is next.
  void took_turn(std::size_t step) noexcept { turn_ = (turn_ + step) % ops_.size() + 1; }

  [[nodiscard]] bool has_frame() const noexcept;
  [[nodiscard]] bool holds_descriptor_of(std::uint32_t pipe) const noexcept;
  /// Ops that are not staged. No lock.
  [[nodiscard]] std::uint32_t waiting_descriptors() const noexcept {
    return waiting_descriptors_.load(std::memory_order_relaxed);
  }
  /// Announced, and not taken as far as the peer has said. No lock.
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
  std::uint64_t announced_bytes_ = 0;  // of those: staged, so that the peer knows of them
  std::uint64_t taken_bytes_ = 0;
  std::atomic<std::uint64_t> untaken_bytes_{0};  // the difference
  std::atomic<std::uint32_t> waiting_descriptors_{0};
};

}  // namespace tendon::v0::detail
