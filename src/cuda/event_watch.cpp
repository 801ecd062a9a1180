// SPDX-License-Identifier: Apache-2.0
#include "cuda/event_watch.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "cuda/stream_name.hpp"

namespace tendon::v0::detail::cuda {

void EventWatch::add(std::vector<WatchedEvent> events) {
  if (events.empty()) return;
  std::move(events.begin(), events.end(), std::back_inserter(events_));
  next_look_ = std::chrono::steady_clock::now();
  pace_.begin(next_look_);
}

Status EventWatch::query(const WatchedEvent& watched) const {
  if (const Status pushed = table_.context_push(watched.context); pushed != Status::success)
    return pushed;
  const Status status = watched.event != nullptr ? table_.event_query(watched.event)
                                                 : look_at_capture(table_, watched.captured);
  ContextHandle popped = nullptr;
  (void)table_.context_pop(&popped);
  return status;
}

void EventWatch::look_if_due() {
  const auto now = std::chrono::steady_clock::now();
  if (events_.empty() || now < next_look_) return;
  // A `then` may be slow, so all events are queried before the first is called.
  std::vector<std::pair<WatchedEvent, Status>> come;
  std::erase_if(events_, [&](WatchedEvent& watched) {
    const Status status = query(watched);
    if (status == Status::not_ready) return false;
    come.emplace_back(std::move(watched), status);
    return true;
  });
  if (!come.empty()) pace_.begin(now);
  next_look_ = now + pace_.pause(now);
  for (const auto& [watched, status] : come) watched.then(status);
}

}  // namespace tendon::v0::detail::cuda
