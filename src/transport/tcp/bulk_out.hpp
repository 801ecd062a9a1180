// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <vector>

#include "transport/message.hpp"
#include "transport/tcp/control_out.hpp"
#include "transport/tcp/frame.hpp"

namespace tendon::inline v0::detail {

/// The sending half of the bulk lanes: cuts bodies into frames and deals them out, one frame of
/// each message in turn, to whichever lane has room, straight from the user's memory.
///
/// Owns:    a buffer of one frame a lane (touched only for strided or scattered bodies and for
///          messages that are withdrawn inside a frame); not the sockets.
/// Threads: every member but the atomics wants mutex() held; it comes before ControlOut's lock.
/// Errors:  failure() holds the errno of the call that failed.
/// Blocks:  never.
/// Cost:    one system call a frame.
class BulkOut {
 public:
  /// `peer_cap_bytes`: what the peer holds of messages that are not complete.
  BulkOut(ControlOut& control, std::uint64_t peer_cap_bytes);

  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }

  [[nodiscard]] Result<void> add_lane(int socket);
  /// Puts an op behind the others. Its descriptor goes out when the peer has room for it.
  void enqueue(SendOp& op);
  [[nodiscard]] bool holds(const SendOp& op) const noexcept;
  struct Progress {
    bool moved = false;  ///< bytes went out
    bool more = false;   ///< and the kernel may take further ones now
  };
  /// Lets every lane write at most once.
  Progress pump();
  /// Takes an op back. What was begun is finished from a copy, and the peer is told to drop it.
  void withdraw(SendOp& op);
  /// Forgets all ops and lanes: the sockets are about to be closed.
  void stop();

  /// Messages of this pipe wait here with their descriptors: nothing may overtake them.
  [[nodiscard]] bool holds_descriptor_of(std::uint32_t pipe) const noexcept;
  [[nodiscard]] std::uint32_t waiting_descriptors() const noexcept {
    return waiting_descriptors_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool idle() const noexcept {
    return unfinished_.load(std::memory_order_relaxed) == 0;
  }
  /// Has this lane something to write? Lanes are numbered as they were added.
  [[nodiscard]] bool lane_waits(std::size_t lane) const noexcept;
  [[nodiscard]] std::uint64_t sent_messages() const noexcept {
    return sent_messages_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t sent_bytes() const noexcept {
    return sent_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] int failure() const noexcept { return failure_.load(std::memory_order_relaxed); }

 private:
  struct Lane {
    int socket = -1;
    bool busy = false;     // inside a frame
    bool copied = false;   // its bytes lie in `buffer`, not in the user's memory
    SendOp* op = nullptr;  // null: the frame is finished without its op
    FrameHeader header;
    std::uint64_t written_bytes = 0;  // header included
    Storage buffer;
  };

  void announce();
  [[nodiscard]] SendOp* next_op();
  [[nodiscard]] bool assign(Lane& lane);
  static void begin_frame(Lane& lane, SendOp& op);
  void begin_tail(Lane& lane, SendOp& op);
  Progress write(Lane& lane);
  void forget(const SendOp& op);
  void recount() noexcept;

  std::mutex mutex_;
  ControlOut& control_;
  const std::uint64_t peer_cap_bytes_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<SendOp*> ops_;
  std::size_t turn_ = 0;
  std::uint64_t open_bytes_ = 0;  // of ops whose descriptor is out
  std::uint32_t open_count_ = 0;
  std::atomic<std::uint32_t> waiting_descriptors_{0};
  std::atomic<std::size_t> unfinished_{0};
  std::atomic<std::uint64_t> sent_messages_{0};
  std::atomic<std::uint64_t> sent_bytes_{0};
  std::atomic<int> failure_{0};
};

}  // namespace tendon::inline v0::detail
