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

/// A thread that runs calls which may take the GIL or run user code, as no thread of the library
/// may. It also runs calls at deadlines.
///
/// Owns:    its thread, from the first call on.
/// Threads: thread-safe.
/// Errors:  if the system has no further thread, post() runs the call at once.
/// Blocks:  stop(), until all posted calls have run.
/// Cost:    a lock and a wake-up each.
class Pump {
 public:
  /// The pump of this process.
  [[nodiscard]] static Pump& get();

  void post(std::function<void()> call) TENDON_EXCLUDES(mutex_);
  /// Runs `call` at the deadline, unless `of` is destroyed before.
  void post_at(Deadline when, std::weak_ptr<void> of, std::function<void()> call)
      TENDON_EXCLUDES(mutex_);
  /// Runs all posted calls. Drops later ones, since the interpreter ends. The caller must not hold
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
