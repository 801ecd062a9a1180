// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "fabric/discovery/discovery.hpp"
#include "fabric/keys/announcement.hpp"

namespace tendon::v0::detail {

/// One node's share of discovery: what it announces and follows, by all the ways that it uses.
///
/// A node follows the entities that its own ones look for, the nodes of the Contexts that have
/// these, and its own name: each of 1000 nodes hears of a few.
///
/// Owns:    its announcements and what it follows; they end with close().
/// Threads: thread-safe; other locks than that of a Discovery are not taken under its own.
/// Errors:  those of Discovery; of announcement.hpp.
/// Blocks:  never.
/// Cost:    as Discovery.
class NodeDiscovery {
 public:
  NodeDiscovery(std::string domain, std::vector<std::shared_ptr<Discovery>> ways)
      : domain_(std::move(domain)), ways_(std::move(ways)) {}
  NodeDiscovery(const NodeDiscovery&) = delete;
  NodeDiscovery& operator=(const NodeDiscovery&) = delete;
  ~NodeDiscovery() = default;

  /// `on_change` as Discovery::watch() says, once for each way; before all else.
  void watch(const std::function<void()>& on_change) TENDON_EXCLUDES(mutex_);
  /// Withdraws and unfollows all; what is announced or followed later has no effect.
  void close() TENDON_EXCLUDES(mutex_);

  [[nodiscard]] Result<void> announce(const KeyExpression& key) TENDON_EXCLUDES(mutex_);
  void withdraw(const KeyExpression& key) TENDON_EXCLUDES(mutex_);

  /// As often as it is followed, it has to be unfollowed.
  [[nodiscard]] Result<void> follow(EntityKind kind, const KeyExpression& topics);
  void unfollow(EntityKind kind, const KeyExpression& topics);
  [[nodiscard]] Result<void> follow_name(const std::string& name);
  /// All of the domain, until close().
  [[nodiscard]] Result<void> follow_all();
  /// The nodes of this Context are followed from now on; nothing happens where they are already.
  [[nodiscard]] Result<void> follow_nodes_of(const ContextId& context)
      TENDON_EXCLUDES(nodes_mutex_);
  void unfollow_nodes_of(const ContextId& context) TENDON_EXCLUDES(nodes_mutex_);

  /// Changes that were not taken before, about so many of each way at most: a key comes once for
  /// each way that knows it, and goes as often. Before the first call: watch().
  [[nodiscard]] std::vector<ChangedKey> take(std::size_t most) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<AnnouncingTrouble> take_troubles() TENDON_EXCLUDES(mutex_);
  /// Complete when that of each way is.
  [[nodiscard]] Picture picture() const;
  /// That of the first way that has one.
  [[nodiscard]] std::string absence() const;

 private:
  using Counts = std::map<KeyExpression, std::size_t>;
  using Do = Result<void> (Discovery::*)(const KeyExpression&);
  using Undo = void (Discovery::*)(const KeyExpression&);
  [[nodiscard]] Result<void> declare(Counts& counts, const KeyExpression& key, Do act, Undo undo)
      TENDON_REQUIRES(mutex_);
  void undeclare(Counts& counts, const KeyExpression& key, Undo undo) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> follow(const KeyExpression& pattern) TENDON_EXCLUDES(mutex_);
  void unfollow(const KeyExpression& pattern) TENDON_EXCLUDES(mutex_);

  const std::string domain_;
  const std::vector<std::shared_ptr<Discovery>> ways_;
  // Changes come one after another, so that all ways see them in one order.
  Mutex mutex_;
  Counts announced_ TENDON_GUARDED_BY(mutex_);
  Counts followed_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> watching_ TENDON_GUARDED_BY(mutex_);              // one for each way
  std::vector<std::shared_ptr<KeyReader>> readers_ TENDON_GUARDED_BY(mutex_);  // likewise
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
  Mutex nodes_mutex_;  // comes before the other
  std::set<ContextId> contexts_ TENDON_GUARDED_BY(nodes_mutex_);
};

}  // namespace tendon::v0::detail
