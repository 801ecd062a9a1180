// SPDX-License-Identifier: Apache-2.0
#include "group/message_box.hpp"

namespace tendon::inline v0::detail {

void MessageBox::put(std::uint32_t place, Inbound&& inbound) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      entries_.push_back({place, std::move(inbound)});
      return;
    }
  }
  inbound.channel->credit(inbound);
}

void MessageBox::close() {
  std::deque<Entry> left;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    left = std::exchange(entries_, {});
  }
  for (const Entry& entry : left) entry.inbound.channel->credit(entry.inbound);
}

}  // namespace tendon::inline v0::detail
