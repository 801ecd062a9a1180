// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "channel/window.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// Counts, on one direction of a channel, the shown messages and those that its receiver has taken.
///
/// Owns:    counters.
/// Threads: count() and uncount() under the sender's lock; the rest at any time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    loads and stores.
class SendWindow {
 public:
  /// `cap_bytes` is that of the receiver.
  SendWindow(Window window, std::uint64_t cap_bytes) : window_(window), cap_bytes_(cap_bytes) {}

  [[nodiscard]] const Window& window() const noexcept { return window_; }
  /// The receiver may take, and report it, before the sending thread has counted.
  [[nodiscard]] std::uint64_t untaken_messages() const noexcept {
    const std::uint64_t shown = shown_messages_.load(std::memory_order_relaxed);
    return shown - std::min(taken_messages_.load(std::memory_order_acquire), shown);
  }
  [[nodiscard]] std::uint64_t untaken_bytes() const noexcept {
    const std::uint64_t shown = shown_bytes_.load(std::memory_order_relaxed);
    return shown - std::min(taken_bytes_.load(std::memory_order_acquire), shown);
  }
  /// The total that was shown so far, and whether the receiver has taken all of an earlier total.
  [[nodiscard]] std::uint64_t shown_bytes() const noexcept {
    return shown_bytes_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool has_taken(std::uint64_t then) const noexcept {
    return taken_bytes_.load(std::memory_order_acquire) >= then;
  }
  /// The same in messages.
  [[nodiscard]] std::uint64_t shown_messages() const noexcept {
    return shown_messages_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool has_taken_messages(std::uint64_t then) const noexcept {
    return taken_messages_.load(std::memory_order_acquire) >= then;
  }
  /// True if a message of this size may be shown.
  [[nodiscard]] bool open_for(std::uint64_t size_bytes) const noexcept {
    return untaken_messages() < window_.messages &&
           (window_.bytes == Window::kUnbounded ||
            window_.fits(untaken_bytes(), size_bytes, cap_bytes_));
  }
  /// Counts a message that was shown, or is about to be.
  void count(std::uint64_t size_bytes) noexcept {
    shown_messages_.store(shown_messages_.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
    shown_bytes_.store(shown_bytes_.load(std::memory_order_relaxed) + size_bytes,
                       std::memory_order_relaxed);
  }
  /// Uncounts a message that was taken back: nobody will take it.
  void uncount(std::uint64_t size_bytes) noexcept {
    shown_messages_.store(shown_messages_.load(std::memory_order_relaxed) - 1,
                          std::memory_order_relaxed);
    shown_bytes_.store(shown_bytes_.load(std::memory_order_relaxed) - size_bytes,
                       std::memory_order_relaxed);
  }

  /// Handles a `credit`: totals, which only rise. Returns whether so much was counted. A receiver
  /// that lies harms only the memory of its own process.
  bool on_credit(const Descriptor& credit) noexcept {
    rise(taken_messages_, credit.sequence);
    rise(taken_bytes_, credit.payload_bytes);
    return credit.payload_bytes <= shown_bytes_.load(std::memory_order_relaxed);
  }
  /// Handles an `ack`: all up to this number has arrived.
  void on_ack(const Descriptor& ack) noexcept { rise(acked_sequence_, ack.sequence); }
  [[nodiscard]] std::uint64_t acked_sequence() const noexcept {
    return acked_sequence_.load(std::memory_order_acquire);
  }

 private:
  // The link's receive lock is held.
  static void rise(std::atomic<std::uint64_t>& total, std::uint64_t said) noexcept {
    if (said > total.load(std::memory_order_relaxed)) total.store(said, std::memory_order_release);
  }

  const Window window_;
  const std::uint64_t cap_bytes_;
  std::atomic<std::uint64_t> shown_messages_{0};
  std::atomic<std::uint64_t> shown_bytes_{0};
  std::atomic<std::uint64_t> taken_messages_{0};
  std::atomic<std::uint64_t> taken_bytes_{0};
  std::atomic<std::uint64_t> acked_sequence_{0};
};

}  // namespace tendon::v0::detail
