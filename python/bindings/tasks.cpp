// SPDX-License-Identifier: Apache-2.0
#include "tasks.hpp"

#include <algorithm>
#include <stop_token>
#include <utility>

namespace tendon::python {
namespace {

thread_local Task* handled = nullptr;

}  // namespace

Result<TensorDict> Tasks::ask(const Request& request) {
  const auto task = std::make_shared<Task>(Task{.request = request, .tasks = this});
  const std::stop_callback wake(request.stop_token(), [this] {
    { const detail::Lock lock(mutex_); }  // the waiter is not between its check and its wait
    done_.notify_all();
  });
  detail::Lock lock(mutex_);
  if (state_ != State::closed) waiting_.push_back(task);
  came_.notify_one();
  while (!task->answer && state_ != State::closed && !request.cancelled()) {
    if (task->call == nullptr) {
      done_.wait(mutex_);
      continue;
    }
    lock.unlock();
    (*task->call)();
    lock.lock();
    task->call = nullptr;
    done_.notify_all();
  }
  std::erase(waiting_, task);
  task->is_over = true;
  done_.notify_all();
  if (task->answer) return *std::move(task->answer);
  return Error{ErrorCode::unreachable, "responder.handler", "the responder ends"};
}

std::shared_ptr<Task> Tasks::next() {
  const detail::Lock lock(mutex_);
  ++idle_count_;
  while (waiting_.empty() && state_ == State::open) came_.wait(mutex_);
  --idle_count_;
  if (waiting_.empty() || state_ == State::closed) return nullptr;
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

void Tasks::run_on_this_thread(Task* task) noexcept { handled = task; }

bool Tasks::call_in_handler(const std::function<void()>& call) {
  Task* const task = handled;
  if (task == nullptr || task->tasks != this) return false;
  const detail::Lock lock(mutex_);
  if (task->is_over) return false;
  task->call = &call;
  done_.notify_all();
  while (task->call != nullptr && !task->is_over) done_.wait(mutex_);
  // The responder's thread stopped waiting before it saw the call.
  return std::exchange(task->call, nullptr) == nullptr;
}

std::size_t Tasks::idle_count() const {
  const detail::Lock lock(mutex_);
  return idle_count_;
}

bool Tasks::is_closed() const {
  const detail::Lock lock(mutex_);
  return state_ == State::closed;
}

void Tasks::finish() {
  {
    const detail::Lock lock(mutex_);
    if (state_ == State::open) state_ = State::finished;
  }
  came_.notify_all();
}

void Tasks::close() {
  {
    const detail::Lock lock(mutex_);
    state_ = State::closed;
  }
  came_.notify_all();
  done_.notify_all();
}

}  // namespace tendon::python
