// SPDX-License-Identifier: Apache-2.0
#include "group/membership/farewell.hpp"

#include <utility>

namespace tendon::v0::detail {

void Farewell::say(ContextCore& context, std::vector<std::shared_ptr<MemberChannel>> channels) {
  auto farewell = std::make_shared<Farewell>(std::move(channels));
  if (farewell->progress()) context.add_work(std::move(farewell));
}

bool Farewell::progress() {
  std::vector<std::shared_ptr<MemberChannel>> done;
  {
    const Lock lock(mutex_);
    std::erase_if(channels_, [&](const auto& channel) {
      if (channel->queued_count() != 0) channel->advance();
      if (!channel->flushed()) return false;
      done.push_back(channel);
      return true;
    });
  }
  // Each takes the lock of its link, which a thread may have that asks for unsent().
  for (const auto& channel : done) channel->close();
  const Lock lock(mutex_);
  return !channels_.empty();
}

Unsent Farewell::unsent() const {
  const Lock lock(mutex_);
  if (channels_.empty()) return {};
  const Link& link = channels_.front()->link();
  Unsent unsent{.peer = link.peer_name(), .context = link.peer().context};
  for (const auto& channel : channels_) unsent.message_count += channel->queued_count();
  return unsent;
}

}  // namespace tendon::v0::detail
