// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/discovery/known_peers.hpp"
#include "fabric/discovery/node_discovery.hpp"
#include "fabric/discovery/wants.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/keys/turn.hpp"
#include "fabric/nodes/context_fabric.hpp"
#include "fabric/nodes/discovery_news.hpp"
#include "fabric/nodes/found_changes.hpp"
#include "fabric/nodes/node_events.hpp"
#include "fabric/ports/node_port.hpp"
#include "fabric/samples/event_log.hpp"
#include "fabric/ways/peer_name.hpp"
#include "runtime/event_callbacks.hpp"
#include "runtime/timers.hpp"

namespace tendon::v0::detail {

class Caller;

/// A node: its announcements, and the publishers to which its subscribers connect.
///
/// The Dialler has one target for each pair of a subscriber here and a reported publisher whose key
/// it takes. The target is a link to the publisher's Context, with a channel on it. A withdrawn
/// announcement ends the attempts, never a channel.
///
/// Owns:    its announcements, a share of the common parts of the Context's nodes.
/// Threads: thread-safe; no other lock is taken under its own, but that of looks is taken before
///          all others: the work of one look ends before the next one looks.
/// Errors:  as Node.
/// Blocks:  close(), as Dialler::drop_all().
/// Cost:    for each change in discovery: looks into trees, however much is announced, made in
///          turns of DiscoveryTurn.
class NodeCore final : public NodePort,
                       public Timed,
                       public DirectoryListener,
                       public std::enable_shared_from_this<NodeCore> {
 public:
  [[nodiscard]] static Result<Node> join(const std::shared_ptr<ContextCore>& context,
                                         NodeOptions options, Deadline deadline);
  [[nodiscard]] static const std::shared_ptr<NodeCore>& of(const Node& node) { return node.core_; }
  NodeCore(std::shared_ptr<ContextFabric> fabric, NodeOptions options, ContextFabric::Ways ways);

  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept override {
    return fabric_->context();
  }
  [[nodiscard]] const std::shared_ptr<Entities>& entities() const noexcept override {
    return fabric_->entities();
  }
  [[nodiscard]] const std::string& domain() const noexcept override { return options_.domain; }
  [[nodiscard]] const NodeOptions& options() const noexcept { return options_; }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] Result<bool> has_plain_subscribers(const KeyExpression& keys, Deadline deadline);
  [[nodiscard]] std::vector<std::string> nodes() const;
  [[nodiscard]] std::vector<EntityInfo> publishers() const;
  [[nodiscard]] std::vector<EntityInfo> subscribers() const;
  [[nodiscard]] Result<void> survey(Deadline deadline);
  [[nodiscard]] Result<PeerStats> peer_stats(const std::string& name) const;
  [[nodiscard]] std::vector<EntityInfo> responders() const;
  [[nodiscard]] Caller& caller() noexcept { return *caller_; }
  void close();

  // NodePort
  [[nodiscard]] Result<void> announce(EntityAnnouncement said, std::string_view where) override;
  void withdraw(EntityAnnouncement said) override;
  [[nodiscard]] Result<void> follow(const std::shared_ptr<Follower>& follower,
                                    EntityAnnouncement said) override;
  /// Waits for an attempt that runs.
  void unfollow(const Follower& follower, EntityAnnouncement said) override;
  void connect_again(const Follower& follower, const PublisherId& publisher) override;
  [[nodiscard]] const std::shared_ptr<ZenohPort>& zenoh() const noexcept override {
    return ways_.zenoh;
  }
  [[nodiscard]] const std::shared_ptr<PlainOutlet>& plain_outlet() const noexcept override {
    return fabric_->plain_outlet();
  }
  [[nodiscard]] Result<void> hear_plain_peers(const std::shared_ptr<PlainInbox>& inbox) override {
    return ways_.ear->hear(inbox);
  }
  [[nodiscard]] bool hears_plain_peers_on(const KeyExpression& keys) const override;
  void tell(FabricEvent event) override;
  void on_event(std::function<void(const FabricEvent&)> callback) override;
  [[nodiscard]] std::string but_no_router() const override;
  [[nodiscard]] PeerName name_of_peer(const ContextId& context) const override;
  [[nodiscard]] Result<void> begin_call(const KeyExpression& key) override;
  void end_call(const KeyExpression& key) override;
  [[nodiscard]] std::vector<EntityAnnouncement> responders_of(
      const KeyExpression& key) const override;
  [[nodiscard]] std::uint64_t discovery_version() const noexcept override { return looks_.load(); }
  [[nodiscard]] std::optional<std::vector<std::string>> addresses_of(
      const ContextId& context) const override;
  [[nodiscard]] Approach reach(const ContextId& context, const std::vector<std::string>& addresses,
                               const Dialler::Dial& dial) const override;

  /// The Contexts of all nodes that discovery reports, its own among them.
  [[nodiscard]] std::vector<ContextId> contexts() const;
  /// The outcome of dialling NodeOptions::peers, of all nodes of the Context: no error if one
  /// answered.
  [[nodiscard]] std::vector<DialAttempt> tried_peers() const { return fabric_->peers().tried(); }
  // Timed
  void on_time() override { look(DiscoveryTurn::begin()); }
  // DirectoryListener
  void on_directory_change(const DirectoryChange& change) override;

 private:
  using Match = FoundChanges::Match;
  using Found = FoundChanges;
  using EntitiesOf = const AnnouncedEntities& (KnownPeers::*)() const noexcept;
  [[nodiscard]] std::vector<EntityInfo> described(EntitiesOf those) const;
  /// The number of called keys that stay followed, for the next call.
  static constexpr std::size_t kMostCalledKeys = 64;

  [[nodiscard]] Result<void> open(Deadline deadline);
  /// The key that announces it, as one of this node's.
  [[nodiscard]] Result<KeyExpression> key_of(EntityAnnouncement said) const;
  /// Handles changes until the turn is over; the next turn does the rest.
  void look(const DiscoveryTurn& turn) TENDON_EXCLUDES(looking_);
  /// False: that was all.
  [[nodiscard]] bool look_at_some() TENDON_REQUIRES(looking_);
  [[nodiscard]] Found note(const std::vector<ChangedKey>& taken) TENDON_REQUIRES(mutex_);
  void note_entity(KeyChange change, const EntityAnnouncement& entity, Found& found)
      TENDON_REQUIRES(mutex_);
  void connect_matches(const std::vector<Match>& matches, std::set<ContextId>& touched)
      TENDON_REQUIRES(looking_);
  void follow_nodes(std::set<ContextId> touched) TENDON_REQUIRES(looking_);
  [[nodiscard]] bool is_connected_to(const ContextId& context) const TENDON_EXCLUDES(mutex_);
  void tell_of_routers() TENDON_REQUIRES(looking_);
  void tell_of_troubles();
  void tell_of_twins(const std::map<std::string, std::size_t>& name_counts)
      TENDON_REQUIRES(looking_);
  void tell_of_undiscoverable(const std::map<ContextId, std::string>& gone)
      TENDON_REQUIRES(looking_);
  void want(const std::shared_ptr<Follower>& subscriber, const EntityAnnouncement& publisher);
  [[nodiscard]] Dialler::Outcome connect(const std::shared_ptr<Follower>& subscriber,
                                         const EntityAnnouncement& publisher,
                                         const Dialler::Dial& dial);
  [[nodiscard]] std::optional<EntityAnnouncement> announced(const PublisherId& publisher) const;
  [[nodiscard]] std::optional<NodeWhereabouts> whereabouts_of(const ContextId& context) const;
  void keep_name(const ContextId& context, const PeerName& name);
  void note_names(const LinkList& links) TENDON_REQUIRES(mutex_);
  [[nodiscard]] PeerName name_of(const ContextId& context) const TENDON_REQUIRES(mutex_);
  void tell_unreachable(const ContextId& peer, const Error& error,
                        const std::vector<DialAttempt>& tried);
  void tell_left_out(const EntityAnnouncement& publisher, const Error& why);
  void note_reached(const PublisherId& publisher);

  const std::shared_ptr<ContextFabric> fabric_;
  const NodeOptions options_;
  const ContextFabric::Ways ways_;
  const std::shared_ptr<Caller> caller_;
  std::string address_;
  std::shared_ptr<Acceptor> acceptor_;  // null: only that of the Context
  NodeDiscovery discovery_;
  NodeAnnouncement self_;
  NodeEvents events_;
  std::atomic<std::uint64_t> looks_{0};
  Mutex looking_;
  DiscoveryNews news_ TENDON_GUARDED_BY(looking_);
  // Followed although nothing there is wanted, or as soon as that succeeds.
  std::set<ContextId> to_follow_ TENDON_GUARDED_BY(looking_);
  mutable Mutex mutex_;
  KnownPeers known_ TENDON_GUARDED_BY(mutex_);
  // While a living link leads to a Context, its node keeps its name, announced or not.
  std::map<ContextId, std::string> names_ TENDON_GUARDED_BY(mutex_);
  NodeInterest interest_ TENDON_GUARDED_BY(mutex_);
  bool closed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
