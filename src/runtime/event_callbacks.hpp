// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

/// What the program wants to be called with for each event of a kind.
///
/// Owns:    the functions.
/// Threads: thread-safe; they are called without its lock.
/// Errors:  what a function throws goes to the caller, and those behind it are not called.
/// Blocks:  call() as long as the functions do.
/// Cost:    a copy of the list for each event.
template <class Event>
class EventCallbacks {
 public:
  using Callback = std::function<void(const Event&)>;

  /// Events that were not told yet, where nobody makes progress. Peers decide how many come: those
  /// beyond are in the log alone.
  static constexpr std::size_t kMaxWaiting = 4096;

  void add(Callback callback) {
    const Lock lock(mutex_);
    callbacks_.push_back(std::move(callback));
  }
  /// Is somebody to be told of one more event? Then call() follows.
  [[nodiscard]] bool admit() {
    const Lock lock(mutex_);
    if (callbacks_.empty() || waiting_count_ == kMaxWaiting) return false;
    ++waiting_count_;
    return true;
  }
  void call(const Event& event) {
    std::vector<Callback> callbacks;
    {
      const Lock lock(mutex_);
      --waiting_count_;
      callbacks = callbacks_;
    }
    for (const Callback& callback : callbacks) callback(event);
  }

 private:
  Mutex mutex_;
  std::size_t waiting_count_ TENDON_GUARDED_BY(mutex_) = 0;
  std::vector<Callback> callbacks_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
