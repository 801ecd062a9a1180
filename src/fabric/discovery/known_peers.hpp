// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/fabric/node_options.hpp>
#include <utility>
#include <vector>

#include "fabric/keys/announced_entities.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/keys/key_set.hpp"

namespace tendon::v0::detail {

/// What announcements say of one domain, kept as they come and go. What cannot be read is as if it
/// was not there.
///
/// Owns:    the announcements.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    of a change: looks into trees, however much is known.
class KnownPeers {
 public:
  /// What follows from some changes, for the owner to act on.
  struct Changes {
    /// Publishers and responders that count from now on, or do not any more, in order.
    std::vector<std::pair<KeyChange, EntityAnnouncement>> entities;
    std::set<ContextId> contexts;                ///< of nodes that came
    std::map<ContextId, std::string> had_nodes;  ///< and may have none any more: their names
    std::set<std::string> names;                 ///< of nodes that came or went
  };

  explicit KnownPeers(std::string domain) : domain_(std::move(domain)) {}

  void apply(const ChangedKey& changed, Changes& changes);

  [[nodiscard]] bool has_node(const ContextId& context) const { return nodes_.contains(context); }
  /// Those of all nodes.
  [[nodiscard]] std::vector<ContextId> contexts() const;
  /// How many nodes have this name.
  [[nodiscard]] std::size_t count_of(const std::string& name) const;
  /// One for each node, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<ContextId> contexts_of(const std::string& name) const;
  /// The names of the nodes of the Context, kMostNames at most; empty while none is known.
  [[nodiscard]] std::string name_of(const ContextId& context) const;
  /// Where to dial the Context, in this order: unix where the two share a host, then tcp.
  [[nodiscard]] std::vector<std::string> addresses_of(const ContextId& context,
                                                      const std::optional<BootHash>& host) const;

  [[nodiscard]] const AnnouncedEntities& publishers() const noexcept { return publishers_; }
  [[nodiscard]] const AnnouncedEntities& subscribers() const noexcept { return subscribers_; }
  [[nodiscard]] const AnnouncedEntities& responders() const noexcept { return responders_; }
  /// For people; see in_order().
  [[nodiscard]] std::vector<EntityInfo> described(const AnnouncedEntities& entities) const;

  /// A name for people has so many nodes of one Context.
  static constexpr std::size_t kMostNames = 8;

 private:
  /// A node, and how often it is announced.
  struct Node {
    NodeAnnouncement said;
    std::uint32_t count = 0;
  };
  void apply_node(const ChangedKey& changed, NodeAnnouncement node, Changes& changes);
  void apply_entity(const ChangedKey& changed, const EntityAnnouncement& entity, Changes& changes);

  const std::string domain_;
  std::map<ContextId, std::map<std::string, Node>> nodes_;  // by their keys
  std::map<std::string, std::size_t> name_counts_;
  AnnouncedEntities publishers_;
  AnnouncedEntities subscribers_;
  AnnouncedEntities responders_;
};

/// Sorted by key and node.
[[nodiscard]] std::vector<EntityInfo> in_order(std::vector<EntityInfo> all);

}  // namespace tendon::v0::detail
