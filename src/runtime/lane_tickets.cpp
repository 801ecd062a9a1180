// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_tickets.hpp"

#include <algorithm>

namespace tendon::v0::detail {

Result<Nonce128> LaneTickets::issue(const std::shared_ptr<StreamLink>& link) {
  TENDON_TRY(ticket, random_nonce());
  const Lock lock(mutex_);
  std::erase_if(lanes_, [&](const Lane& lane) {
    return lane.link.expired() ||
           (!lane.link.owner_before(link) && !link.owner_before(lane.link));  // the same
  });
  lanes_.push_back({ticket, link});
  return ticket;
}

std::shared_ptr<StreamLink> LaneTickets::take(const Nonce128& ticket) {
  const Lock lock(mutex_);
  const auto found = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return lane.ticket == ticket; });
  if (found == lanes_.end()) return nullptr;
  auto link = found->link.lock();
  lanes_.erase(found);
  return link;
}

}  // namespace tendon::v0::detail
