// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <thread>
#include <utility>

namespace tendon::v0::detail {

/// Calls a function from time to time in a thread of its own, so that heartbeats go on while the
/// program computes or holds Python's lock, and however busy the service thread is.
///
/// Owns:    its thread.
/// Threads: safe everywhere but in the function itself.
/// Errors:  none.
/// Blocks:  its end, for the function that runs.
/// Cost:    a thread.
class Heart {
 public:
  /// `beat` returns when it wants to be called again.
  explicit Heart(std::function<std::chrono::nanoseconds()> beat)
      : beat_(std::move(beat)), thread_([this] { run(); }) {}
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  ~Heart() {
    {
      const Lock lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  /// The next beat comes now.
  void wake() {
    {
      const Lock lock(mutex_);
      woken_ = true;
    }
    changed_.notify_one();
  }

 private:
  void run() TENDON_EXCLUDES(mutex_) {
    Lock lock(mutex_);
    while (!ended_) {
      woken_ = false;
      lock.unlock();
      const Deadline next(beat_());
      lock.lock();
      while (!ended_ && !woken_ && !next.has_passed()) (void)changed_.wait_until(mutex_, next);
    }
  }

  const std::function<std::chrono::nanoseconds()> beat_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ TENDON_GUARDED_BY(mutex_) = false;
  bool woken_ TENDON_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tendon::v0::detail
