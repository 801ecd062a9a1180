// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/peer_view.hpp"

#include <algorithm>
#include <optional>

namespace tendon::v0::detail {

std::optional<PeerStats> stats_of_peer(ContextCore& context, const ContextId& peer) {
  std::optional<PeerStats> found;
  const auto least = [](const auto& one, const auto& other) {
    return one && other ? std::min(one, other) : one ? one : other;
  };
  const auto links = context.links().all();
  for (const auto& link : *links) {
    if (link->peer().context != peer || link->ended()) continue;
    const LinkStats stats = link->stats();
    if (!found) {
      found = PeerStats{.node = {},
                        .context = peer,
                        .incarnation = link->peer().incarnation,
                        .path = link->path(),
                        .round_trip = {},
                        .silence = stats.silence};
    }
    // A pair may have one link for each side that made it.
    if (link->path().kind == PathKind::shm) found->path = link->path();
    found->messages_sent += stats.messages_sent;
    found->messages_received += stats.messages_received;
    found->bytes_sent += stats.bytes_sent;
    found->bytes_received += stats.bytes_received;
    found->dropped_messages += stats.dropped_messages;
    found->silence = std::min(found->silence, stats.silence);
    if (!context.links().clock_was_asked(*link)) context.ask_clock(*link);
    found->round_trip = least(found->round_trip, context.links().round_trip_of(*link));
  }
  return found;
}

}  // namespace tendon::v0::detail
