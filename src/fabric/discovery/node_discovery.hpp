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

/// One node's share of discovery: its announcements and followed keys, in all the ways that it
/// uses.
///
/// A node follows the entities for which its own ones look, the nodes of the Contexts that have
/// these, and its own name: each of 1000 nodes hears of a few.
///
/// Owns:    its announcements and followed keys; they end with close().
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

  /// Calls `on_change` as Discovery::watch(), once for each way. Call it first.
  void watch(const std::function<void()>& on_change) TENDON_EXCLUDES(mutex_);
  /// Withdraws and unfollows all; later announcements and follows have no effect.
  void close() TENDON_EXCLUDES(mutex_);

  [[nodiscard]] Result<void> announce(const KeyExpression& key) TENDON_EXCLUDES(mutex_);
  void withdraw(const KeyExpression& key) TENDON_EXCLUDES(mutex_);

  /// Follows; it must be unfollowed as often.
  [[nodiscard]] Result<void> follow(EntityKind kind, const KeyExpression& topics);
  void unfollow(EntityKind kind, const KeyExpression& topics);
  [[nodiscard]] Result<void> follow_name(const std::string& name);
  /// Follows all of the domain, until close().
  [[nodiscard]] Result<void> follow_all();
  /// Follows the nodes of this Context from now on; does nothing if they are followed already.
  [[nodiscard]] Result<void> follow_nodes_of(const ContextId& context)
      TENDON_EXCLUDES(nodes_mutex_);
  void unfollow_nodes_of(const ContextId& context) TENDON_EXCLUDES(nodes_mutex_);

  /// Takes new changes, about so many of each way at most. A key appears once for each way that
  /// knows it, and disappears as often. Call watch() first.
  [[nodiscard]] std::vector<ChangedKey> take(std::size_t most) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<AnnouncingTrouble> take_troubles() TENDON_EXCLUDES(mutex_);
  /// Complete when that of each way is.
  [[nodiscard]] Picture picture() const;
  /// The absence of the first way that has one.
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
  // Changes are made one after another, so that all ways see them in one order.
  Mutex mutex_;
  Counts announced_ TENDON_GUARDED_BY(mutex_);
  Counts followed_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> watching_ TENDON_GUARDED_BY(mutex_);              // one for each way
  std::vector<std::shared_ptr<KeyReader>> readers_ TENDON_GUARDED_BY(mutex_);  // likewise
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
  Mutex nodes_mutex_;  // is taken before the other
  std::set<ContextId> contexts_ TENDON_GUARDED_BY(nodes_mutex_);
};

}  // namespace tendon::v0::detail
