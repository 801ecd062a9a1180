// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/known_peers.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "fabric/discovery/node_environment.hpp"

namespace tendon::v0::detail {

void KnownPeers::apply(const ChangedKey& changed, Changes& changes) {
  auto announcement = parse_announcement(changed.key);
  if (!announcement) return;
  if (auto* node = std::get_if<NodeAnnouncement>(&*announcement)) {
    if (node->domain == domain_) apply_node(changed, std::move(*node), changes);
  } else if (const auto* entity = std::get_if<EntityAnnouncement>(&*announcement)) {
    if (entity->domain == domain_) apply_entity(changed, *entity, changes);
  }
}

void KnownPeers::apply_node(const ChangedKey& changed, NodeAnnouncement node, Changes& changes) {
  const ContextId context = node.context;
  const std::string name = node.name;
  if (changed.change == KeyChange::came) {
    Node& known = nodes_[context][changed.key];
    if (++known.count > 1) return;
    known.said = std::move(node);
    ++name_counts_[name];
    changes.contexts.insert(context);
  } else {
    const auto nodes = nodes_.find(context);
    if (nodes == nodes_.end()) return;
    const auto known = nodes->second.find(changed.key);
    if (known == nodes->second.end() || --known->second.count > 0) return;
    changes.had_nodes.try_emplace(context, name_of(context));
    nodes->second.erase(known);
    if (nodes->second.empty()) nodes_.erase(nodes);
    if (const auto count = name_counts_.find(name); --count->second == 0) name_counts_.erase(count);
  }
  changes.names.insert(name);
}

void KnownPeers::apply_entity(const ChangedKey& changed, const EntityAnnouncement& entity,
                              Changes& changes) {
  AnnouncedEntities& known = entity.kind == EntityKind::publisher    ? publishers_
                             : entity.kind == EntityKind::subscriber ? subscribers_
                                                                     : responders_;
  const bool counts = changed.change == KeyChange::came ? known.add(changed.key, entity)
                                                        : known.remove(changed.key, entity);
  if (!counts || entity.kind == EntityKind::subscriber) return;
  changes.entities.emplace_back(changed.change, entity);
  if (changed.change == KeyChange::came) return;
  if (const auto* next = known.find({entity.context, entity.entity}))
    changes.entities.emplace_back(KeyChange::came, *next);
}

std::vector<ContextId> KnownPeers::contexts() const {
  std::vector<ContextId> contexts;
  contexts.reserve(nodes_.size());
  for (const auto& [context, nodes] : nodes_) contexts.push_back(context);
  return contexts;
}

std::size_t KnownPeers::count_of(const std::string& name) const {
  const auto found = name_counts_.find(name);
  return found == name_counts_.end() ? 0 : found->second;
}

std::vector<std::string> KnownPeers::names() const {
  std::vector<std::string> names;
  for (const auto& [name, count] : name_counts_) names.insert(names.end(), count, name);
  return names;
}

std::vector<ContextId> KnownPeers::contexts_of(const std::string& name) const {
  std::vector<ContextId> contexts;
  for (const auto& [context, nodes] : nodes_) {
    const bool has_name =
        std::ranges::any_of(nodes, [&](const auto& node) { return node.second.said.name == name; });
    if (has_name) contexts.push_back(context);
  }
  return contexts;
}

std::string KnownPeers::name_of(const ContextId& context) const {
  std::string names;
  const auto found = nodes_.find(context);
  if (found == nodes_.end()) return names;
  std::size_t count = 0;
  for (const auto& [key, node] : found->second) {
    if (++count > kMostNames) return names + "+...";
    names += (names.empty() ? "" : "+") + node.said.name;
  }
  return names;
}

std::vector<std::string> KnownPeers::addresses_of(const ContextId& context,
                                                  const std::optional<BootHash>& host) const {
  std::vector<std::string> addresses;
  const auto found = nodes_.find(context);
  if (found == nodes_.end()) return addresses;
  const auto add = [&](std::string address) {
    if (std::ranges::find(addresses, address) == addresses.end())
      addresses.push_back(std::move(address));
  };
  for (const auto& [key, node] : found->second) {
    if (!node.said.unix_on || node.said.unix_on != host) continue;
    if (auto address = unix_address_of(context)) add(*std::move(address));
  }
  for (const auto& [key, node] : found->second)
    for (const Address& address : node.said.addresses) add(address.to_string());
  return addresses;
}

std::vector<EntityInfo> KnownPeers::described(const AnnouncedEntities& entities) const {
  std::vector<EntityInfo> all;
  all.reserve(entities.size());
  entities.each([&](const EntityAnnouncement& entity) {
    all.push_back({entity.topic.text(), name_of(entity.context), entity.schema, entity.qos});
  });
  return all;
}

std::vector<EntityInfo> in_order(std::vector<EntityInfo> all) {
  std::ranges::sort(all, {}, [](const EntityInfo& one) { return std::tie(one.key, one.node); });
  return all;
}

}  // namespace tendon::v0::detail
