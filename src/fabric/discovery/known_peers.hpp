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

/// The announcements of one domain, kept up to date. Unreadable ones count as absent.
///
/// Owns:    the announcements.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    for each change: looks into trees, however much is known.
class KnownPeers {
 public:
  /// The consequences of some changes, on which the owner acts.
  struct Changes {
    /// Publishers and responders that count from now on, or not any more, in order.
    std::vector<std::pair<KeyChange, EntityAnnouncement>> entities;
    std::set<ContextId> contexts;                ///< of nodes that appeared
    std::map<ContextId, std::string> had_nodes;  ///< Contexts that may have no node any more: their
                                                 ///< names
    std::set<std::string> names;                 ///< of nodes that appeared or disappeared
  };

  explicit KnownPeers(std::string domain) : domain_(std::move(domain)) {}

  void apply(const ChangedKey& changed, Changes& changes);

  [[nodiscard]] bool has_node(const ContextId& context) const { return nodes_.contains(context); }
  /// The Contexts of all nodes.
  [[nodiscard]] std::vector<ContextId> contexts() const;
  /// The number of nodes with this name.
  [[nodiscard]] std::size_t count_of(const std::string& name) const;
  /// The names, one for each node, sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<ContextId> contexts_of(const std::string& name) const;
  /// The names of the nodes of the Context, kMostNames at most; empty while none is known.
  [[nodiscard]] std::string name_of(const ContextId& context) const;
  /// The addresses of the Context, in the order of dialling: unix if the two share a host, then
  /// tcp.
  [[nodiscard]] std::vector<std::string> addresses_of(const ContextId& context,
                                                      const std::optional<BootHash>& host) const;

  [[nodiscard]] const AnnouncedEntities& publishers() const noexcept { return publishers_; }
  [[nodiscard]] const AnnouncedEntities& subscribers() const noexcept { return subscribers_; }
  [[nodiscard]] const AnnouncedEntities& responders() const noexcept { return responders_; }
  /// Descriptions for people; see in_order().
  [[nodiscard]] std::vector<EntityInfo> described(const AnnouncedEntities& entities) const;

  /// A name for people contains so many nodes of one Context.
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
