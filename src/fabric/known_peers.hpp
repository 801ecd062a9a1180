// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/announcement.hpp"
#include "fabric/feed.hpp"

namespace tendon::v0::detail {

/// What announcements say of one domain. What cannot be read is as if it was not there.
struct KnownPeers {
  using Entities = std::map<PublisherId, EntityAnnouncement>;

  std::map<ContextId, std::vector<NodeAnnouncement>> nodes;  ///< several may share a Context
  Entities publishers;
  Entities subscribers;
  Entities responders;

  [[nodiscard]] static KnownPeers read(const std::set<std::string>& keys,
                                       const std::string& domain);
  /// How many nodes have a name.
  [[nodiscard]] std::map<std::string, std::size_t> name_counts() const;
  /// The names of all nodes of the Context; empty while none is known.
  [[nodiscard]] std::string name_of(const ContextId& context) const;
  /// Where to dial the Context, in this order: unix where the two share a host, then tcp.
  [[nodiscard]] std::vector<std::string> addresses_of(const ContextId& context,
                                                      const std::optional<BootHash>& host) const;
  /// For people, sorted by key and node.
  [[nodiscard]] std::vector<EntityInfo> described(const Entities& entities) const;
};

}  // namespace tendon::v0::detail
