// SPDX-License-Identifier: Apache-2.0
#include "control/relay/reception.hpp"

namespace tendon::v0::detail {

void Reception::open(Listener listener, std::weak_ptr<PipeListener> owner) {
  listener_.emplace(std::move(listener));
  owner_ = std::move(owner);
  accept_next();
}

void Reception::accept_next() {
  // The next accept may call it again, on another thread, before this returns.
  const Lock lock(mutex_);
  Completion<Pipe> next = listener_->accept_async();
  next.on_done([this, weak = owner_](Result<Pipe> pipe) {
    if (const auto owner = weak.lock()) accepted(std::move(pipe));
  });
  accepting_.emplace(std::move(next));
}

void Reception::accepted(Result<Pipe> pipe) {
  if (!pipe.has_value()) return;  // the listener or the Context was closed
  const auto silent = std::make_shared<WorkerPipe>(*std::move(pipe), owner_);
  std::shared_ptr<WorkerPipe> gives_way;
  {
    const Lock lock(mutex_);
    if (is_closed_) {
      gives_way = silent;
    } else {
      silent_.push_back(silent);
      if (silent_.size() > kMaxUnseatedWorkers) {
        gives_way = silent_.front();
        silent_.pop_front();
      }
    }
  }
  if (gives_way != nullptr) gives_way->cancel(full_);
  silent->start();
  accept_next();
}

bool Reception::leave(const std::shared_ptr<WorkerPipe>& pipe) {
  const Lock lock(mutex_);
  return std::erase(silent_, pipe) != 0;
}

void Reception::close() {
  {
    const Lock lock(mutex_);
    is_closed_ = true;
  }
  if (listener_) listener_->close();
}

std::deque<std::shared_ptr<WorkerPipe>> Reception::take_silent() {
  const Lock lock(mutex_);
  return std::exchange(silent_, {});
}

}  // namespace tendon::v0::detail
