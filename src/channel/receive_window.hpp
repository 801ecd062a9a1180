// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "channel/window.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// Counts, on one direction of a channel, the messages that wait, those that were taken, and those
/// that the sender knows to be taken.
///
/// Owns:    counters.
/// Threads: none of its own.
/// Errors:  none; the caller must ask before it counts.
/// Blocks:  never.
/// Cost:    a few additions.
class ReceiveWindow {
 public:
  /// `cap_bytes` is that of this side.
  ReceiveWindow(Window window, std::uint64_t cap_bytes) : window_(window), cap_bytes_(cap_bytes) {}

  [[nodiscard]] const Window& window() const noexcept { return window_; }
  [[nodiscard]] std::uint64_t waiting_bytes() const noexcept { return waiting_bytes_; }
  [[nodiscard]] std::uint64_t taken_messages() const noexcept { return taken_messages_; }
  /// True if a message fits. An honest sender keeps to the window by the credits that it got, which
  /// never exceed the taken messages.
  [[nodiscard]] bool admits(std::uint64_t size_bytes) const noexcept {
    return window_.fits(waiting_bytes_, size_bytes, cap_bytes_);
  }
  void come(std::uint64_t size_bytes) noexcept { waiting_bytes_ += size_bytes; }
  /// Forgets a message that will not be taken.
  void drop(std::uint64_t size_bytes) noexcept {
    waiting_bytes_ -= std::min(waiting_bytes_, size_bytes);
  }
  void drop_all() noexcept { waiting_bytes_ = 0; }
  /// Counts a taken message. Returns the credit that is due now; its pipe is 0 when none is. A step
  /// is due when it is whole; a message that is large in the window is reported at once.
  [[nodiscard]] Descriptor take(std::uint32_t pipe, std::uint64_t size_bytes) noexcept {
    drop(size_bytes);
    ++taken_messages_;
    taken_bytes_ += size_bytes;
    Descriptor credit;
    if (taken_messages_ - told_messages_ < window_.step_messages &&
        taken_bytes_ - told_bytes_ < window_.step_bytes && size_bytes < window_.bytes / 8)
      return credit;
    return tell(pipe);
  }
  /// Returns the credit for taken messages that were not reported, though no step is whole; its
  /// pipe is 0 when there is none. For a sender that waits for less than the window.
  [[nodiscard]] Descriptor tell(std::uint32_t pipe) noexcept {
    Descriptor credit;
    if (taken_messages_ == told_messages_) return credit;
    told_messages_ = taken_messages_;
    told_bytes_ = taken_bytes_;
    credit.kind = MessageKind::credit;
    credit.pipe = pipe;
    credit.sequence = taken_messages_;
    credit.payload_bytes = taken_bytes_;
    return credit;
  }

 private:
  const Window window_;
  const std::uint64_t cap_bytes_;
  std::uint64_t waiting_bytes_ = 0;
  std::uint64_t taken_messages_ = 0;
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t told_messages_ = 0;
  std::uint64_t told_bytes_ = 0;
};

}  // namespace tendon::v0::detail
