// SPDX-License-Identifier: Apache-2.0
#include "tasks.hpp"

#include <algorithm>
#include <stop_token>
#include <utility>

namespace tendon::python {

Result<TensorDict> Tasks::ask(const Request& request) {
  const auto task = std::make_shared<Task>(Task{request});
  const std::stop_callback wake(request.stop_token(), [this] {
    { const detail::Lock lock(mutex_); }  // it is not between its look and its wait
    done_.notify_all();
  });
  const detail::Lock lock(mutex_);
  if (!closed_) waiting_.push_back(task);
  came_.notify_one();
  while (!task->answer && !closed_ && !request.cancelled()) done_.wait(mutex_);
  std::erase(waiting_, task);
  if (task->answer) return *std::move(task->answer);
  return Error{ErrorCode::unreachable, "responder.handler", "the responder ends"};
}

std::shared_ptr<Task> Tasks::next() {
  const detail::Lock lock(mutex_);
  ++idle_count_;
  while (waiting_.empty() && !closed_) came_.wait(mutex_);
  --idle_count_;
  if (closed_) return nullptr;
  auto task = std::move(waiting_.front());
  waiting_.pop_front();
  return task;
}

void Tasks::answer(Task& task, Result<TensorDict> answer) {
  {
    const detail::Lock lock(mutex_);
    task.answer.emplace(std::move(answer));
  }
  done_.notify_all();
}

std::size_t Tasks::idle_count() const {
  const detail::Lock lock(mutex_);
  return idle_count_;
}

bool Tasks::is_closed() const {
  const detail::Lock lock(mutex_);
  return closed_;
}

void Tasks::close() {
  {
    const detail::Lock lock(mutex_);
    closed_ = true;
  }
  came_.notify_all();
  done_.notify_all();
}

}  // namespace tendon::python
