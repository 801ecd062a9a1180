// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "core/thread.hpp"

namespace tendon::python {

/// A thread that calls what may take the GIL or run code of a user, which no thread of the library
/// may do; and what a deadline asks for.
///
/// Owns:    its thread, from the first call on.
/// Threads: thread-safe.
/// Errors:  where the system has no thread to spare, post() calls at once.
/// Blocks:  stop(), until what was posted has been called.
/// Cost:    a lock and a wake-up each.
class Pump {
 public:
  /// That of this process.
  [[nodiscard]] static Pump& get();

  void post(std::function<void()> call) TENDON_EXCLUDES(mutex_);
  /// Calls it at the deadline, unless `of` has ended by then.
  void post_at(Deadline when, std::weak_ptr<void> of, std::function<void()> call)
      TENDON_EXCLUDES(mutex_);
  /// Calls what was posted. What is posted afterwards is dropped: the interpreter ends. Not with
  /// the GIL, which the calls may need.
  void stop() TENDON_EXCLUDES(mutex_);

 private:
  struct Later {
    Deadline when;
    std::weak_ptr<void> of;
    std::function<void()> call;
  };

  bool start() TENDON_REQUIRES(mutex_);
  void run() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Deadline next() const TENDON_REQUIRES(mutex_);
  void take_due() TENDON_REQUIRES(mutex_);

  detail::Mutex mutex_;
  detail::CondVar changed_;
  std::deque<std::function<void()>> calls_ TENDON_GUARDED_BY(mutex_);
  std::vector<Later> later_ TENDON_GUARDED_BY(mutex_);
  bool stopped_ TENDON_GUARDED_BY(mutex_) = false;
  detail::Thread thread_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::python
