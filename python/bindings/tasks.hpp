// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/responder.hpp>
#include <utility>

namespace tendon::python {

class Tasks;

/// A request that a thread of Python handles.
struct Task {
  Request request;
  const Tasks* tasks;
  std::optional<Result<TensorDict>> answer{};
  /// A call for the responder's thread that waits for the answer; set while it is pending.
  const std::function<void()>* call = nullptr;
  bool is_over = false;  ///< the responder's thread has stopped waiting
};

/// Passes requests from the threads of a responder, which never take the GIL, to threads of Python.
///
/// Owns:    the waiting requests.
/// Threads: thread-safe.
/// Errors:  unreachable once it is closed.
/// Blocks:  ask() until there is an answer or its caller stops; next() until there is a task;
///          call_in_handler() while the call runs.
/// Cost:    two locks, and waking two threads.
class Tasks {
 public:
  /// `key` is the key of the responder.
  explicit Tasks(std::string key) : key_(std::move(key)) {}
  [[nodiscard]] const std::string& key() const noexcept { return key_; }
  /// The handler of the Responder.
  [[nodiscard]] Result<TensorDict> ask(const Request& request);
  /// Called without the GIL. Null once the tasks are closed.
  [[nodiscard]] std::shared_ptr<Task> next();
  void answer(Task& task, Result<TensorDict> answer);
  /// Tells that the handler of `task` runs on this thread; null: it has ended.
  static void run_on_this_thread(Task* task) noexcept;
  /// In a handler of these tasks, runs the call on the responder's waiting thread, which the
  /// responder recognizes as one in a handler. Elsewhere returns false without the call.
  [[nodiscard]] bool call_in_handler(const std::function<void()>& call);
  /// The number of threads that wait in next().
  [[nodiscard]] std::size_t idle_count() const;
  /// The responder has ended: threads end when no task waits; running handlers may still answer.
  void finish();
  /// Ends all threads; no request is answered afterwards.
  void close();
  [[nodiscard]] bool is_closed() const;

 private:
  const std::string key_;
  mutable detail::Mutex mutex_;
  detail::CondVar came_;
  detail::CondVar done_;
  std::deque<std::shared_ptr<Task>> waiting_ TENDON_GUARDED_BY(mutex_);
  std::size_t idle_count_ TENDON_GUARDED_BY(mutex_) = 0;
  enum class State : std::uint8_t { open, finished, closed };
  State state_ TENDON_GUARDED_BY(mutex_) = State::open;
};

}  // namespace tendon::python
