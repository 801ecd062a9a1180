// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

namespace tendon::python {

/// Events between the callback that gets them, which never takes the GIL, and the program that
/// takes them.
///
///   open -> closed
///
/// Owns:    kMostEvents events at most. A further one is counted, and not kept.
/// Threads: thread-safe; several may take.
/// Errors:  timeout; pipe_closed once it is closed and empty.
/// Blocks:  next() until the deadline.
/// Cost:    a lock.
template <class Event>
class EventQueue {
 public:
  static constexpr std::size_t kMostEvents = 4096;

  void push(const Event& event) TENDON_EXCLUDES(mutex_) {
    {
      const detail::Lock lock(mutex_);
      if (closed_) return;
      if (events_.size() == kMostEvents) {
        ++dropped_;
        return;
      }
      events_.push_back(event);
    }
    changed_.notify_one();
  }

  [[nodiscard]] Result<Event> next(std::string_view where, Deadline deadline)
      TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    while (events_.empty()) {
      if (closed_) return Error{ErrorCode::pipe_closed, where, "it was closed"};
      if (deadline.is_poll() || !changed_.wait_until(mutex_, deadline)) {
        if (!events_.empty()) break;
        return Error{ErrorCode::timeout, where, "nothing happened until the deadline"};
      }
    }
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

  [[nodiscard]] std::uint64_t dropped() const TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    return dropped_;
  }

  void close() TENDON_EXCLUDES(mutex_) {
    {
      const detail::Lock lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  mutable detail::Mutex mutex_;
  detail::CondVar changed_;
  std::deque<Event> events_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t dropped_ TENDON_GUARDED_BY(mutex_) = 0;
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::python
