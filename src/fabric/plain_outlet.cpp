// SPDX-License-Identifier: Apache-2.0
#include "fabric/plain_outlet.hpp"

#include <pthread.h>

#include <system_error>
#include <tendon/observe/log.hpp>
#include <utility>

#include "fabric/plain_topic.hpp"

namespace tendon::v0::detail {

void PlainOutlet::add(std::shared_ptr<PlainTopic> topic) {
  const Lock lock(mutex_);
  if (stopped_) return;
  topics_.push_back(std::move(topic));
  if (thread_.joinable()) return added_.notify_one();
  try {
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "tendon-plain");
  } catch (const std::system_error& failure) {
    log(LogLevel::error, "publisher.plain",
        std::string("no thread for plain Zenoh peers: ") + failure.what());
  }
}

void PlainOutlet::stop() {
  std::thread thread;
  std::deque<std::shared_ptr<PlainTopic>> left;
  {
    const Lock lock(mutex_);
    stopped_ = true;
    thread = std::move(thread_);
    left.swap(topics_);
    added_.notify_one();
  }
  if (thread.joinable()) thread.join();
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
