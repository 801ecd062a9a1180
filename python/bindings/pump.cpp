// SPDX-License-Identifier: Apache-2.0
#include "pump.hpp"

#include <algorithm>
#include <utility>

#include "core/process_wide.hpp"

namespace tendon::python {

Pump& Pump::get() {
  static constinit detail::PerProcess<Pump> pump;
  return pump.get();
}

void Pump::post(std::function<void()> call) {
  {
    const detail::Lock lock(mutex_);
    if (stopped_) return;
    if (start()) {
      calls_.push_back(std::exchange(call, nullptr));
      changed_.notify_one();
    }
  }
  if (call) call();
}

void Pump::post_at(Deadline when, std::weak_ptr<void> of, std::function<void()> call) {
  const detail::Lock lock(mutex_);
  if (stopped_ || when.is_never() || !start()) return;
  std::erase_if(later_, [](const Later& each) { return each.of.expired(); });
  later_.push_back({when, std::move(of), std::move(call)});
  changed_.notify_one();
}

void Pump::stop() {
  detail::Thread ending;
  {
    const detail::Lock lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
    ending = std::move(thread_);
  }
  ending.join();
}

bool Pump::start() {
  if (thread_.joinable()) return true;
  auto started = detail::Thread::start(
      {.name = "tendon-pump", .where = "python.pump", .task = "that completes futures"},
      [this] { run(); });
  if (!started) return false;
  thread_ = *std::move(started);
  return true;
}

void Pump::run() {
  detail::Lock lock(mutex_);
  while (true) {
    take_due();
    if (calls_.empty()) {
      if (stopped_) return;
      (void)changed_.wait_until(mutex_, next());
      continue;
    }
    auto call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    call();
    call = nullptr;  // destroys its captures without the lock
    lock.lock();
  }
}

Deadline Pump::next() const {
  Deadline first = Deadline::never();
  for (const Later& each : later_) first = earlier(first, each.when);
  return first;
}

void Pump::take_due() {
  const auto due = std::partition(later_.begin(), later_.end(),
                                  [](const Later& each) { return !each.when.has_passed(); });
  for (auto each = due; each != later_.end(); ++each)
    if (!each->of.expired()) calls_.push_back(std::move(each->call));
  later_.erase(due, later_.end());
}

}  // namespace tendon::python
