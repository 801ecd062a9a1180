// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tendon::test {

/// Paces a task until it is told to stop.
class StopSignal {
 public:
  void request() {
    {
      const std::lock_guard lock(mutex_);
      requested_ = true;
    }
    changed_.notify_all();
  }
  [[nodiscard]] bool requested() const {
    const std::lock_guard lock(mutex_);
    return requested_;
  }
  /// Returns after this time, or at the request.
  void wait_for(std::chrono::microseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return requested_; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool requested_ = false;
};

}  // namespace tendon::test
