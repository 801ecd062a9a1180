// SPDX-License-Identifier: Apache-2.0
#include "group/farewell.hpp"

#include <utility>

namespace tendon::inline v0::detail {

void Farewell::say(Engine& engine, std::vector<std::shared_ptr<Channel>> channels) {
  auto farewell = std::make_shared<Farewell>(std::move(channels));
  if (farewell->progress()) engine.add_work(std::move(farewell));
}

bool Farewell::progress() {
  std::vector<std::shared_ptr<Channel>> done;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(channels_, [&](const auto& channel) {
      if (!channel->flushed()) return false;
      done.push_back(channel);
      return true;
    });
  }
  // Each takes the lock of its link, which a thread may have that asks for unsent().
  for (const auto& channel : done) channel->close();
  std::lock_guard lock(mutex_);
  return !channels_.empty();
}

Unsent Farewell::unsent() const {
  std::lock_guard lock(mutex_);
  if (channels_.empty()) return {};
  return {.peer = channels_.front()->link().peer_name(), .message_count = 0};
}

}  // namespace tendon::inline v0::detail
