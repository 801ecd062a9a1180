// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "core/thread.hpp"

namespace tendon::v0::detail {

/// Calls a function from time to time in a thread of its own, so that heartbeats continue while the
/// program computes or holds Python's lock, however busy the service thread is.
///
/// Owns:    its thread.
/// Threads: safe everywhere but in the function itself.
/// Errors:  start(): resource_exhausted without a thread.
/// Blocks:  its end, for the function that runs.
/// Cost:    a thread.
class Heart {
 public:
  /// `beat` returns the time until its next call.
  [[nodiscard]] static Result<std::unique_ptr<Heart>> start(
      std::function<std::chrono::nanoseconds()> beat) {
    auto heart = std::make_unique<Heart>(std::move(beat));
    TENDON_TRY(thread, Thread::start({.name = "tendon-heart",
                                      .where = "control.heartbeat",
                                      .task = "that sends heartbeats"},
                                     [self = heart.get()] { self->run(); }));
    heart->thread_ = std::move(thread);
    return heart;
  }
  explicit Heart(std::function<std::chrono::nanoseconds()> beat) : beat_(std::move(beat)) {}
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
  /// Makes the next beat start now.
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
  Thread thread_;
};

}  // namespace tendon::v0::detail
