// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_tickets.hpp"

#include <algorithm>

namespace tendon::v0::detail {

Result<Nonce128> LaneTickets::issue(const std::shared_ptr<StreamLink>& link,
                                    std::uint32_t lane_count) {
  TENDON_TRY(ticket, random_nonce());
  const Lock lock(mutex_);
  std::erase_if(links_, [](const Lanes& lanes) { return lanes.link.expired(); });
  links_.push_back(
      {.ticket = ticket, .link = link, .count = std::min(lane_count, kMaxStreamsPerLink)});
  return ticket;
}

LaneTickets::Taken LaneTickets::take(const Nonce128& ticket, std::uint32_t lane_index,
                                     const std::shared_ptr<StreamLink>& of) {
  const Lock lock(mutex_);
  const auto found = std::ranges::find(links_, ticket, &Lanes::ticket);
  if (found == links_.end()) return {};
  auto link = found->link.lock();
  if (link == nullptr || (of != nullptr && link != of)) return {};
  if (lane_index >= found->count) return {Verdict::beyond, std::move(link)};
  const std::uint32_t bit = 1u << lane_index;
  if ((found->joined & bit) != 0) return {Verdict::twice, std::move(link)};
  found->joined |= bit;
  return {Verdict::joins, std::move(link)};
}

}  // namespace tendon::v0::detail
