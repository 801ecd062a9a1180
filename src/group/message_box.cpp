// SPDX-License-Identifier: Apache-2.0
#include "group/message_box.hpp"

#include <algorithm>
#include <functional>

namespace tendon::v0::detail {

void MessageBox::put(std::uint32_t place, InboundMessage&& inbound) {
  {
    const Lock lock(mutex_);
    if (!closed_) {
      entries_.push_back({place, ++arrived_, std::move(inbound)});
      return;
    }
  }
  inbound.credit();
}

void MessageBox::put_back(Entry&& entry) {
  const Lock lock(mutex_);
  if (closed_) return entry.inbound.credit();
  const auto behind = std::ranges::upper_bound(entries_, entry.number, std::less(), &Entry::number);
  entries_.insert(behind, std::move(entry));
}

void MessageBox::close() {
  std::deque<Entry> left;
  {
    const Lock lock(mutex_);
    closed_ = true;
    left = std::exchange(entries_, {});
  }
  for (const Entry& entry : left) entry.inbound.credit();
}

}  // namespace tendon::v0::detail
