// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

namespace tendon::v0::detail {

/// The thread that last asked for a sample of a subscriber. A publisher of the same Context must
/// not wait on that thread for this subscriber: while it waits, nobody receives.
///
/// Owns:    an id.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a store for each receive.
class LastReceiver {
 public:
  /// Called by the thread that receives.
  void note() noexcept { thread_.store(std::this_thread::get_id(), std::memory_order_relaxed); }
  [[nodiscard]] bool is_nobody() const noexcept { return thread() == std::thread::id(); }
  [[nodiscard]] bool is_this_thread() const noexcept {
    return thread() == std::this_thread::get_id();
  }

 private:
  [[nodiscard]] std::thread::id thread() const noexcept {
    return thread_.load(std::memory_order_relaxed);
  }
  std::atomic<std::thread::id> thread_{};
};

}  // namespace tendon::v0::detail
