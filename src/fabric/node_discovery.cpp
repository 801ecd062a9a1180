// SPDX-License-Identifier: Apache-2.0
#include "fabric/node_discovery.hpp"

#include <tendon/observe/log.hpp>
#include <utility>

namespace tendon::v0::detail {

void NodeDiscovery::watch(const std::function<void()>& on_change) {
  const Lock lock(mutex_);
  for (const auto& way : ways_) watching_.push_back(way->watch(on_change));
}

void NodeDiscovery::close() {
  const Lock lock(mutex_);
  closed_ = true;
  for (std::size_t i = 0; i < watching_.size(); ++i) ways_[i]->unwatch(watching_[i]);
  watching_.clear();
  for (const auto& way : ways_) {
    for (const auto& [key, count] : announced_) way->withdraw(key);
    for (const auto& [pattern, count] : followed_) way->unfollow(pattern);
  }
  announced_.clear();
  followed_.clear();
}

// What one way refuses is taken back from the others: all of them say the same.
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

void NodeDiscovery::follow_nodes_of(const std::set<ContextId>& contexts) {
  const Lock lock(nodes_mutex_);
  for (const ContextId& context : contexts) {
    if (contexts_.contains(context)) continue;
    const auto pattern = pattern_of_nodes(domain_, context);
    const auto followed = pattern ? follow(*pattern) : Result<void>(pattern.error());
    if (followed) contexts_.insert(context);
    // The next change tries it again.
    if (!followed) {
      log(LogLevel::warn, "node.discovery",
          "the node of " + context.to_string() + " is not followed: " + followed.error().message());
    }
  }
  std::erase_if(contexts_, [&](const ContextId& context) {
    if (contexts.contains(context)) return false;
    if (const auto pattern = pattern_of_nodes(domain_, context)) unfollow(*pattern);
    return true;
  });
}

std::set<std::string> NodeDiscovery::keys() const {
  std::set<std::string> keys;
  for (const auto& way : ways_) keys.merge(way->keys());
  return keys;
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
