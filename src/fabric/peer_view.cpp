// SPDX-License-Identifier: Apache-2.0
#include "fabric/peer_view.hpp"

namespace tendon::v0::detail {

std::optional<PeerStats> stats_of_peer(ContextCore& context, const ContextId& peer) {
  std::optional<PeerStats> found;
  const auto links = context.links().all();
  for (const auto& link : *links) {
    if (link->peer().context != peer || link->ended()) continue;
    const LinkStats stats = link->stats();
    if (!found) {
      found = PeerStats{.node = {},
                        .context = peer,
                        .incarnation = link->peer().incarnation,
                        .path = link->path()};
    }
    // A pair may have one link for each side that made it.
    if (link->path().kind == PathKind::shm) found->path = link->path();
    found->messages_sent += stats.messages_sent;
    found->messages_received += stats.messages_received;
    found->bytes_sent += stats.bytes_sent;
    found->bytes_received += stats.bytes_received;
    found->dropped_messages += stats.dropped_messages;
  }
  return found;
}

}  // namespace tendon::v0::detail
