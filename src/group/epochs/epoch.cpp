// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/epoch.hpp"

#include "transport/shared_memory_link.hpp"

namespace tendon::v0::detail {

void ring_members(const Epoch& epoch) {
  for (const auto& channel : epoch.channels)
    if (channel != nullptr && channel->link().shared_memory() != nullptr)
      channel->link().shared_memory()->ring_for_flags();
}

void settle_steps(const Epoch& epoch) {
  for (const auto& channel : epoch.channels)
    if (channel != nullptr) channel->settle_steps();
}

Error mismatch_error(const Epoch& epoch, const Fingerprint& mine, GroupRank member,
                     const Fingerprint& theirs) {
  std::string detail = epoch.names[epoch.self] + " called " + to_string(mine) + ", " +
                       epoch.names[member] + " called " + to_string(theirs);
  if (to_string(mine) == to_string(theirs)) {
    Fingerprint otherwise = theirs;
    otherwise.history = mine.history;
    detail += otherwise == mine ? ". The calls before were not the same: had each broadcast and "
                                  "reduce the same root on all members?"
                                : ", with other shapes, dtypes, names or another factor";
  }
  return Error{ErrorCode::mismatch, "group.collective", std::move(detail)};
}

Error error_of_gone(const Epoch& epoch, GroupRank rank, Error why) {
  if (why.code == ErrorCode::end_of_stream) why.code = ErrorCode::peer_lost;
  why.where = "group";
  why.detail = epoch.names[rank] + " has gone: " + why.detail;
  return why;
}

bool all_arrived_from(const Epoch& epoch, GroupRank rank) {
  // Read after the loss is known: data announced before it counts as arriving by now.
  const auto& channel = epoch.channels[rank];
  return channel == nullptr || !channel->arriving() || channel->link().ended();
}

}  // namespace tendon::v0::detail
