// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/fabric_event.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <vector>

#include "fabric/keys/announcement.hpp"
#include "fabric/keys/publisher_id.hpp"
#include "fabric/plain/plain_inbox.hpp"
#include "fabric/plain/plain_outlet.hpp"
#include "fabric/ports/entities.hpp"
#include "fabric/ways/detours.hpp"
#include "fabric/ways/dialler.hpp"
#include "fabric/ways/peer_name.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// A subscriber, as its node sees it: it follows publishers.
class Follower {
 public:
  virtual ~Follower() = default;
  [[nodiscard]] virtual std::uint32_t entity() const noexcept = 0;
  [[nodiscard]] virtual const KeyExpression& keys() const noexcept = 0;
  /// True if it takes this publisher, by all its announced properties.
  [[nodiscard]] virtual bool takes(const EntityAnnouncement& publisher) = 0;
  /// True if it has a living channel to this publisher; to any publisher of this Context.
  [[nodiscard]] virtual bool is_connected(const PublisherId& publisher) const = 0;
  [[nodiscard]] virtual bool is_connected_to(const ContextId& context) const = 0;
  /// Opens a channel to this publisher. `node` is its name.
  [[nodiscard]] virtual Result<void> connect(const EntityAnnouncement& publisher,
                                             const PeerName& node,
                                             const std::shared_ptr<Link>& link) = 0;
};

/// The node, as its publishers, subscribers, responders and callers see it.
///
/// Owns:    nothing.
/// Threads: thread-safe.
/// Errors:  pipe_closed if the node was closed; those of each call.
/// Blocks:  unfollow(), while an attempt runs; reach(), until the deadline.
/// Cost:    that of discovery.
class NodePort {
 public:
  virtual ~NodePort() = default;

  [[nodiscard]] virtual const std::shared_ptr<ContextCore>& context() const noexcept = 0;
  [[nodiscard]] virtual const std::shared_ptr<Entities>& entities() const noexcept = 0;
  [[nodiscard]] virtual const std::string& domain() const noexcept = 0;

  /// Announces it. The node fills in its domain and its Context; `where` appears in errors.
  [[nodiscard]] virtual Result<void> announce(EntityAnnouncement said, std::string_view where) = 0;
  virtual void withdraw(EntityAnnouncement said) = 0;
  /// Announces it, and connects it to the publishers that it takes.
  [[nodiscard]] virtual Result<void> follow(const std::shared_ptr<Follower>& follower,
                                            EntityAnnouncement said) = 0;
  virtual void unfollow(const Follower& follower, EntityAnnouncement said) = 0;
  /// Connects it again after a channel to this publisher has ended.
  virtual void connect_again(const Follower& follower, const PublisherId& publisher) = 0;

  // Plain Zenoh peers
  /// Null: the node has no Zenoh.
  [[nodiscard]] virtual const std::shared_ptr<ZenohPort>& zenoh() const noexcept = 0;
  [[nodiscard]] virtual const std::shared_ptr<PlainOutlet>& plain_outlet() const noexcept = 0;
  /// Makes `inbox` hear plain peers from now on. The node must have Zenoh.
  [[nodiscard]] virtual Result<void> hear_plain_peers(const std::shared_ptr<PlainInbox>& inbox) = 0;
  /// True if NodeOptions::plain_keys says so of a subscriber of these keys.
  [[nodiscard]] virtual bool hears_plain_peers_on(const KeyExpression& keys) const = 0;

  // Events, names
  /// Logs it, and reports it to the program; under any lock.
  virtual void tell(FabricEvent event) = 0;
  virtual void on_event(std::function<void(const FabricEvent&)> callback) = 0;
  /// For errors of waits: ": no router answers at ...", or empty while one does.
  [[nodiscard]] virtual std::string but_no_router() const = 0;
  /// The name that discovery reports, or reported while there was a link.
  [[nodiscard]] virtual PeerName name_of_peer(const ContextId& context) const = 0;

  // Calls
  /// Begins a call. From the first one on, discovery reports the responders of a key; it may stop
  /// when no call of it runs. Each begin_call() that succeeds has its end_call().
  [[nodiscard]] virtual Result<void> begin_call(const KeyExpression& key) = 0;
  virtual void end_call(const KeyExpression& key) = 0;
  [[nodiscard]] virtual std::vector<EntityAnnouncement> responders_of(
      const KeyExpression& key) const = 0;
  /// Changes whenever reports of discovery have been handled.
  [[nodiscard]] virtual std::uint64_t discovery_version() const noexcept = 0;
  /// Empty while the node itself is not announced; an empty list if it listens nowhere.
  [[nodiscard]] virtual std::optional<std::vector<std::string>> addresses_of(
      const ContextId& context) const = 0;
  /// Makes a link to an announced Context, in any way: direct, dialled back, routed. On a thread
  /// that may wait.
  [[nodiscard]] virtual Approach reach(const ContextId& context,
                                       const std::vector<std::string>& addresses,
                                       const Dialler::Dial& dial) const = 0;
};

}  // namespace tendon::v0::detail
