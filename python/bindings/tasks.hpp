// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/responder.hpp>

namespace tendon::python {

/// A request on its way through a thread of Python.
struct Task {
  Request request;
  std::optional<Result<TensorDict>> answer{};
};

/// Hands requests from the threads of a responder, which never take the GIL, to threads of Python.
///
/// Owns:    the requests that wait.
/// Threads: thread-safe.
/// Errors:  unreachable once it is closed.
/// Blocks:  ask() until there is an answer, or its caller gives up; next() until there is a task.
/// Cost:    two locks, and waking two threads.
class Tasks {
 public:
  /// The handler of a Responder.
  [[nodiscard]] Result<TensorDict> ask(const Request& request);
  /// Called without the GIL. Null: it was closed.
  [[nodiscard]] std::shared_ptr<Task> next();
  void answer(Task& task, Result<TensorDict> answer);
  /// Threads that wait in next().
  [[nodiscard]] std::size_t idle_count() const;
  void close();
  [[nodiscard]] bool is_closed() const;

 private:
  mutable detail::Mutex mutex_;
  detail::CondVar came_;
  detail::CondVar done_;
  std::deque<std::shared_ptr<Task>> waiting_ TENDON_GUARDED_BY(mutex_);
  std::size_t idle_count_ TENDON_GUARDED_BY(mutex_) = 0;
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::python
