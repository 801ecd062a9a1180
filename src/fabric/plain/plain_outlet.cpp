// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain/plain_outlet.hpp"

#include <tendon/observe/log.hpp>
#include <utility>

#include "fabric/plain/plain_topic.hpp"

namespace tendon::v0::detail {

void PlainOutlet::add(std::shared_ptr<PlainTopic> topic) {
  const Lock lock(mutex_);
  if (stopped_) return;
  topics_.push_back(std::move(topic));
  if (thread_.joinable()) return added_.notify_one();
  auto started = Thread::start(
      {.name = "tendon-plain", .where = "publisher.plain", .task = "for plain Zenoh peers"},
      [this] { run(); });
  if (!started) return log(LogLevel::error, "publisher.plain", started.error().detail);
  thread_ = *std::move(started);
}

void PlainOutlet::stop() {
  Thread thread;
  std::deque<std::shared_ptr<PlainTopic>> left;
  {
    const Lock lock(mutex_);
    stopped_ = true;
    thread = std::move(thread_);
    left.swap(topics_);
    added_.notify_one();
  }
  thread.join();
}

void PlainOutlet::run() {
  for (;;) {
    std::shared_ptr<PlainTopic> topic;
    {
      const Lock lock(mutex_);
      while (topics_.empty() && !stopped_) added_.wait(mutex_);
      if (stopped_) return;
      topic = std::move(topics_.front());
      topics_.pop_front();
    }
    topic->put_newest();
  }
}

}  // namespace tendon::v0::detail
