// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tendon/core/context_id.hpp>
#include <vector>

#include "fabric/discovery/wants.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/ports/node_port.hpp"
#include "fabric/ways/peer_name.hpp"

namespace tendon::v0::detail {

/// The work that follows from changes, to be done without the lock.
struct FoundChanges {
  /// A subscriber here, and a publisher that it may take.
  struct Match {
    std::shared_ptr<Follower> subscriber;
    EntityAnnouncement publisher;
  };

  std::vector<Match> matches;
  std::vector<Wants::Want> gone;  // publishers that are not announced any more
  std::vector<Match> to_want;     // their nodes are announced from now on
  std::set<ContextId> touched;    // the reasons to follow their nodes may have changed
  std::map<std::string, std::size_t> name_counts;  // of names that appeared or disappeared
  std::map<ContextId, std::string> gone_nodes;
};

/// The subscribers, wants and calls of a node, by which it judges changes.
struct NodeInterest {
  OwnSubscribers subscribers;
  Wants wants;
  CalledKeys called;
};

/// A Context as one look finds it: the name of its node, and its addresses.
struct NodeWhereabouts {
  PeerName name;
  std::vector<std::string> addresses;
};

}  // namespace tendon::v0::detail
