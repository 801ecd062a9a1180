// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

/// The functions that the program wants to have called for each event of a kind.
///
/// Owns:    the functions.
/// Threads: thread-safe; they are called without its lock.
/// Errors:  an exception of a function reaches the caller, and later functions are not called.
/// Blocks:  call() as long as the functions do.
/// Cost:    a copy of the list for each event.
template <class Event>
class EventCallbacks {
 public:
  using Callback = std::function<void(const Event&)>;

  /// Most events that wait to be reported while nobody makes progress. Peers decide how many
  /// arrive; any beyond this are only logged.
  static constexpr std::size_t kMaxWaiting = 4096;

  void add(Callback callback) {
    const Lock lock(mutex_);
    callbacks_.push_back(std::move(callback));
  }
  /// Returns whether one more event is to be reported. If true, call() must follow.
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
