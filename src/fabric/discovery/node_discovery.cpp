// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/node_discovery.hpp"

#include <utility>

namespace tendon::v0::detail {

void NodeDiscovery::watch(const std::function<void()>& on_change) {
  const Lock lock(mutex_);
  for (const auto& way : ways_) {
    readers_.push_back(way->read());
    watching_.push_back(way->watch(on_change));
  }
}

void NodeDiscovery::close() {
  const Lock lock(mutex_);
  closed_ = true;
  for (std::size_t i = 0; i < watching_.size(); ++i) ways_[i]->unwatch(watching_[i]);
  watching_.clear();
  readers_.clear();
  for (const auto& way : ways_) {
    for (const auto& [key, count] : announced_) way->withdraw(key);
    for (const auto& [pattern, count] : followed_) way->unfollow(pattern);
  }
  announced_.clear();
  followed_.clear();
}

// If one way refuses, the others withdraw too: all of them announce the same.
Result<void> NodeDiscovery::declare(Counts& counts, const KeyExpression& key, Do act, Undo undo) {
  if (closed_ || ++counts[key] > 1) return {};
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    auto declared = ((*ways_[i]).*act)(key);
    if (declared) continue;
    for (std::size_t before = 0; before < i; ++before) ((*ways_[before]).*undo)(key);
    counts.erase(key);
    return declared;
  }
  return {};
}

void NodeDiscovery::undeclare(Counts& counts, const KeyExpression& key, Undo undo) {
  const auto found = counts.find(key);
  if (found == counts.end() || --found->second > 0) return;
  counts.erase(found);
  for (const auto& way : ways_) ((*way).*undo)(key);
}

Result<void> NodeDiscovery::announce(const KeyExpression& key) {
  const Lock lock(mutex_);
  return declare(announced_, key, &Discovery::announce, &Discovery::withdraw);
}

void NodeDiscovery::withdraw(const KeyExpression& key) {
  const Lock lock(mutex_);
  undeclare(announced_, key, &Discovery::withdraw);
}

Result<void> NodeDiscovery::follow(const KeyExpression& pattern) {
  const Lock lock(mutex_);
  return declare(followed_, pattern, &Discovery::follow, &Discovery::unfollow);
}

void NodeDiscovery::unfollow(const KeyExpression& pattern) {
  const Lock lock(mutex_);
  undeclare(followed_, pattern, &Discovery::unfollow);
}

Result<void> NodeDiscovery::follow(EntityKind kind, const KeyExpression& topics) {
  TENDON_TRY(pattern, pattern_of_entities(domain_, kind, topics));
  return follow(pattern);
}

void NodeDiscovery::unfollow(EntityKind kind, const KeyExpression& topics) {
  if (const auto pattern = pattern_of_entities(domain_, kind, topics)) unfollow(*pattern);
}

Result<void> NodeDiscovery::follow_name(const std::string& name) {
  TENDON_TRY(pattern, pattern_of_nodes(domain_, name));
  return follow(pattern);
}

Result<void> NodeDiscovery::follow_all() {
  TENDON_TRY(pattern, pattern_of_domain(domain_));
  return follow(pattern);
}

Result<void> NodeDiscovery::follow_nodes_of(const ContextId& context) {
  const Lock lock(nodes_mutex_);
  if (contexts_.contains(context)) return {};
  TENDON_TRY(pattern, pattern_of_nodes(domain_, context));
  TENDON_CHECK(follow(pattern));
  contexts_.insert(context);
  return {};
}

void NodeDiscovery::unfollow_nodes_of(const ContextId& context) {
  const Lock lock(nodes_mutex_);
  if (contexts_.erase(context) == 0) return;
  if (const auto pattern = pattern_of_nodes(domain_, context)) unfollow(*pattern);
}

std::vector<ChangedKey> NodeDiscovery::take(std::size_t most) {
  std::vector<ChangedKey> taken;
  const Lock lock(mutex_);
  for (const auto& reader : readers_)
    for (ChangedKey& changed : reader->take(most)) taken.push_back(std::move(changed));
  return taken;
}

std::vector<AnnouncingTrouble> NodeDiscovery::take_troubles() {
  std::vector<AnnouncingTrouble> taken;
  const Lock lock(mutex_);
  for (const auto& reader : readers_)
    for (AnnouncingTrouble& trouble : reader->take_troubles()) taken.push_back(std::move(trouble));
  return taken;
}

std::string NodeDiscovery::absence() const {
  std::string text;
  for (auto way = ways_.begin(); way != ways_.end() && text.empty(); ++way)
    text = (*way)->absence();
  return text;
}

Picture NodeDiscovery::picture() const {
  for (const auto& way : ways_)
    if (way->picture() == Picture::incomplete) return Picture::incomplete;
  return Picture::complete;
}

}  // namespace tendon::v0::detail
