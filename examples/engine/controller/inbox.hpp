// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace engine {

/// A queue from other threads to one thread that polls it.
///
/// Owns:    the queued items.
/// Threads: any thread may add, one takes.
/// Errors:  none.
/// Blocks:  wait(), until its time is over.
/// Cost:    one lock.
template <class T>
class Inbox {
 public:
  void leave(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_one();
  }
  [[nodiscard]] std::vector<T> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }
  /// Returns when an item was added, or after this time.
  void wait(std::chrono::nanoseconds at_most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, at_most, [this] { return !items_.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<T> items_;
};

}  // namespace engine
