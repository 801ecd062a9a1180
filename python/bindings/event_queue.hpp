// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "bell.hpp"

namespace tendon::python {

/// A queue of events from a callback, which never takes the GIL, to the program.
///
///   open -> closed
///
/// Owns:    at most kMostEvents events. It counts further events and drops them.
/// Threads: thread-safe; several may take. Locks its mutex before that of a Completion.
/// Errors:  timeout; pipe_closed once it is closed and empty.
/// Blocks:  next() until the deadline.
/// Cost:    a lock.
template <class Event>
class EventQueue : public std::enable_shared_from_this<EventQueue<Event>> {
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
      if (!posted_.empty()) {
        finish_first(event);
      } else {
        events_.push_back(event);
      }
    }
    changed_.notify_all();
  }

  [[nodiscard]] Result<Event> next(std::string_view where, Deadline deadline)
      TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    while (events_.empty()) {
      if (closed_) return closed(where, ErrorCode::pipe_closed);
      if (deadline.is_poll() || !changed_.wait_until(mutex_, deadline)) {
        if (!events_.empty()) break;
        return Error{ErrorCode::timeout, where, "nothing happened until the deadline"};
      }
    }
    return pop();
  }

  /// Returns a taken event to the front of the queue.
  void put_back(Event event) TENDON_EXCLUDES(mutex_) {
    {
      const detail::Lock lock(mutex_);
      if (!posted_.empty()) {
        finish_first(std::move(event));
      } else {
        events_.push_front(std::move(event));
      }
    }
    changed_.notify_all();
  }

  /// Takes the next event, now or later. `closed_as` is the error after the queue is closed and
  /// empty. If the completion is dropped, an event that has arrived stays for the next taker.
  [[nodiscard]] Completion<Event> post(ErrorCode closed_as) TENDON_EXCLUDES(mutex_) {
    auto posted = std::make_shared<Posted>(this->shared_from_this(), closed_as);
    const detail::Lock lock(mutex_);
    if (!events_.empty()) {
      (void)posted->finish(pop());
    } else if (closed_) {
      (void)posted->finish(closed(kPosted, closed_as));
    } else {
      posted_.push_back(posted);
    }
    return Completion<Event>(std::move(posted));
  }

  [[nodiscard]] std::uint64_t dropped() const TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    return dropped_;
  }

  void close() TENDON_EXCLUDES(mutex_) {
    {
      const detail::Lock lock(mutex_);
      closed_ = true;
      while (!posted_.empty()) finish_first(closed(kPosted, posted_.front()->closed_as));
    }
    changed_.notify_all();
  }

  /// A descriptor that is readable when a posted completion is done.
  [[nodiscard]] Result<int> fd() TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    return bell_.fd();
  }
  /// Resets fd(); the next completion makes it readable again.
  void arm() TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    bell_.silence();
  }

 private:
  static constexpr std::string_view kPosted = "events.arecv";

  /// A post() that waits or has its event.
  class Posted final : public detail::CompletionState<Event> {
   public:
    Posted(std::shared_ptr<EventQueue> queue, ErrorCode closed)
        : closed_as(closed), queue_(std::move(queue)) {}

    void drive(Deadline deadline) override { queue_->wait_for(*this, deadline); }
    void cancel() override { queue_->withdraw(*this); }
    void abandon() override {
      queue_->withdraw(*this);
      this->hand_back();
    }
    void schedule(std::function<void()> run) override { run(); }

    const ErrorCode closed_as;

   private:
    void left_over(Result<Event> result) override {
      if (result) queue_->put_back(*std::move(result));
    }

    const std::shared_ptr<EventQueue> queue_;
  };

  static Error closed(std::string_view where, ErrorCode code) {
    return Error{code, where, "it was closed"};
  }
  Event pop() TENDON_REQUIRES(mutex_) {
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void finish_first(Result<Event> result) TENDON_REQUIRES(mutex_) {
    (void)posted_.front()->finish(std::move(result));
    posted_.pop_front();
    bell_.ring();
  }
  void wait_for(const Posted& posted, Deadline deadline) TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    while (!posted.finished() && !deadline.is_poll() && changed_.wait_until(mutex_, deadline)) {
    }
  }
  /// Afterwards nothing finishes `posted`.
  void withdraw(Posted& posted) TENDON_EXCLUDES(mutex_) {
    const detail::Lock lock(mutex_);
    const auto found =
        std::ranges::find_if(posted_, [&](const auto& each) { return each.get() == &posted; });
    if (found == posted_.end()) return;
    (void)posted.finish(
        Error{ErrorCode::cancelled, "completion.cancel", "cancelled before an event came"});
    posted_.erase(found);
    bell_.ring();
    changed_.notify_all();
  }

  mutable detail::Mutex mutex_;
  detail::CondVar changed_;
  std::deque<Event> events_ TENDON_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Posted>> posted_ TENDON_GUARDED_BY(mutex_);  // while no event waits
  Bell bell_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t dropped_ TENDON_GUARDED_BY(mutex_) = 0;
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::python
