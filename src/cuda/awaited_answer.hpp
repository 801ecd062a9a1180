// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

namespace tendon::v0::detail::cuda {

/// The answer of a job that another thread does for a caller, which waits until its deadline.
///
/// Owns:    the answer, until one of both takes it.
/// Threads: thread-safe: one thread delivers it, one waits.
/// Errors:  wait(): timeout. A job that has not begun then never does; the answer of one that has
///          is dropped by the thread that delivers it.
/// Blocks:  wait(), until its deadline.
/// Cost:    a lock and a wake-up.
template <class R>
class AwaitedAnswer {
 public:
  /// True if the caller still wants it. Asked before the job begins.
  [[nodiscard]] bool is_wanted() {
    const Lock lock(mutex_);
    return !is_withdrawn_;
  }
  void deliver(R answer) {
    Lock lock(mutex_);
    if (is_withdrawn_) {
      lock.unlock();  // the destructor of an answer may be slow
      return;
    }
    answer_.emplace(std::move(answer));
    delivered_.notify_one();
  }
  /// `late` is the detail of the timeout.
  [[nodiscard]] R wait(Deadline deadline, std::string_view where, std::string_view late) {
    const Lock lock(mutex_);
    while (!answer_) {
      if (delivered_.wait_until(mutex_, deadline) || answer_) continue;
      is_withdrawn_ = true;
      return Error{ErrorCode::timeout, where, std::string(late)};
    }
    return std::move(*answer_);
  }

 private:
  Mutex mutex_;
  CondVar delivered_;
  std::optional<R> answer_ TENDON_GUARDED_BY(mutex_);
  bool is_withdrawn_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail::cuda
