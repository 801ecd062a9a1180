// SPDX-License-Identifier: Apache-2.0
#include "fabric/known_peers.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "fabric/context_fabric.hpp"

namespace tendon::v0::detail {

KnownPeers KnownPeers::read(const std::set<std::string>& keys, const std::string& domain) {
  KnownPeers known;
  for (const std::string& key : keys) {
    auto announcement = parse_announcement(key);
    if (!announcement) continue;
    if (auto* node = std::get_if<NodeAnnouncement>(&*announcement)) {
      if (node->domain == domain) known.nodes[node->context].push_back(std::move(*node));
    } else if (auto* entity = std::get_if<EntityAnnouncement>(&*announcement)) {
      if (entity->domain != domain) continue;
      auto& of_its_kind = entity->kind == EntityKind::publisher    ? known.publishers
                          : entity->kind == EntityKind::subscriber ? known.subscribers
                                                                   : known.responders;
      of_its_kind.emplace(PublisherId{entity->context, entity->entity}, std::move(*entity));
    }
  }
  return known;
}

std::map<std::string, std::size_t> KnownPeers::name_counts() const {
  std::map<std::string, std::size_t> counts;
  for (const auto& [context, its_nodes] : nodes)
    for (const NodeAnnouncement& node : its_nodes) ++counts[node.name];
  return counts;
}

std::string KnownPeers::name_of(const ContextId& context) const {
  std::string names;
  if (const auto found = nodes.find(context); found != nodes.end())
    for (const NodeAnnouncement& node : found->second)
      names += (names.empty() ? "" : "+") + node.name;
  return names;
}

std::vector<std::string> KnownPeers::addresses_of(const ContextId& context,
                                                  const std::optional<BootHash>& host) const {
  std::vector<std::string> addresses;
  const auto found = nodes.find(context);
  if (found == nodes.end()) return addresses;
  const auto add = [&](std::string address) {
    if (std::ranges::find(addresses, address) == addresses.end())
      addresses.push_back(std::move(address));
  };
  for (const NodeAnnouncement& node : found->second) {
    if (!node.unix_on || node.unix_on != host) continue;
    if (auto address = ContextFabric::unix_address(context)) add(*std::move(address));
  }
  for (const NodeAnnouncement& node : found->second)
    for (const Address& address : node.addresses) add(address.to_string());
  return addresses;
}

std::vector<EntityInfo> KnownPeers::described(const Entities& entities) const {
  std::vector<EntityInfo> all;
  all.reserve(entities.size());
  for (const auto& [id, entity] : entities)
    all.push_back({entity.topic.text(), name_of(id.context), entity.schema, entity.qos});
  std::ranges::sort(all, {}, [](const EntityInfo& one) { return std::tie(one.key, one.node); });
  return all;
}

}  // namespace tendon::v0::detail
