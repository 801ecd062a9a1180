// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/node_options.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "fabric/discovery/runtime_home.hpp"
#include "fabric/discovery/static_discovery.hpp"
#include "fabric/discovery/zenoh_discovery.hpp"
#include "fabric/discovery/zenoh_membership.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/plain/plain_ear.hpp"
#include "fabric/plain/plain_outlet.hpp"
#include "fabric/ports/entities.hpp"
#include "fabric/ways/detours.hpp"
#include "fabric/ways/dialler.hpp"
#include "fabric/zenoh/star_seat.hpp"
#include "runtime/acceptor.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// The discoveries of a node, its ways to peers that its Context does not reach, and its session of
/// Zenoh. Without Zenoh the last three are null.
struct NodeWays {
  std::vector<std::shared_ptr<Discovery>> discoveries;
  std::shared_ptr<Detours> detours{};
  std::shared_ptr<ZenohPort> zenoh{};
  std::shared_ptr<PlainEar> ear{};  ///< null without `zenoh`
};

/// The shared parts of the nodes of one Context.
///
/// Owns:    the parts; the unix socket at which every node of this host and user can reach the
///          Context, under a name that its id determines.
/// Threads: thread-safe.
/// Errors:  invalid_argument when the nodes of a Context differ in their profile; those of
///          Acceptor.
/// Blocks:  the destructor, as Dialler and the sessions of Zenoh.
/// Cost:    a socket; a session of Zenoh, if nodes find others by it.
class ContextFabric {
 public:
  using Ways = NodeWays;
  /// The fabric of this Context, made by its first node.
  [[nodiscard]] static Result<std::shared_ptr<ContextFabric>> of(
      const std::shared_ptr<ContextCore>& context, Profile profile);
  ContextFabric(std::shared_ptr<ContextCore> context, Profile profile)
      : context_(std::move(context)), profile_(profile) {}
  ContextFabric(const ContextFabric&) = delete;
  ContextFabric& operator=(const ContextFabric&) = delete;
  ~ContextFabric();

  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept { return context_; }
  [[nodiscard]] Profile profile() const noexcept { return profile_; }
  [[nodiscard]] const std::shared_ptr<Entities>& entities() const noexcept { return entities_; }
  [[nodiscard]] StaticDiscovery& peers() noexcept { return *peers_; }
  /// Returns how a node with these options finds others. Each is found by those that name it as
  /// their peer; Zenoh is used too if there are no peers, or if there are routers. Errors: those of
  /// join_star() and join_routers(). Blocks: while the first session to these routers is opened, or
  /// awaited.
  [[nodiscard]] Result<Ways> ways_of(const NodeOptions& options, Deadline deadline)
      TENDON_EXCLUDES(opening_);
  /// Makes nodes that name these routers use this session, which is open already.
  [[nodiscard]] Result<void> adopt(const std::vector<std::string>& routers,
                                   ZenohMembership membership) TENDON_EXCLUDES(opening_);
  [[nodiscard]] const std::shared_ptr<PlainOutlet>& plain_outlet() const noexcept {
    return plain_outlet_;
  }
  [[nodiscard]] const std::shared_ptr<Dialler>& dialler() const noexcept { return dialler_; }
  /// The host whose unix sockets reach this Context; empty if there is no directory for them.
  [[nodiscard]] const std::optional<BootHash>& unix_on() const noexcept { return unix_on_; }
  /// Reports changes of the directory in which the Context is served.
  void add(std::weak_ptr<DirectoryListener> listener) {
    if (home_ != nullptr) home_->add(std::move(listener));
  }
  /// Opens a further place where peers are admitted.
  [[nodiscard]] Result<std::shared_ptr<Acceptor>> listen(const std::string& address);

  /// Called once, by ContextParts.
  [[nodiscard]] Result<void> open();

 private:
  const std::shared_ptr<ContextCore> context_;
  const Profile profile_;
  const std::shared_ptr<Dialler> dialler_ = std::make_shared<Dialler>();
  std::shared_ptr<Entities> entities_;
  std::shared_ptr<StaticDiscovery> peers_;
  const std::shared_ptr<PlainOutlet> plain_outlet_ = std::make_shared<PlainOutlet>();
  std::shared_ptr<RuntimeHome> home_;  // null: there is no runtime directory
  std::optional<BootHash> unix_on_;
  // A session for each star and each list of routers. Later members end first.
  struct Session {
    std::shared_ptr<StarSeat> server;
    std::shared_ptr<ZenohPort> client;
    LateZenoh* late = nullptr;  // the client, if it may still be awaited
    std::shared_ptr<PlainEar> ear;
    std::shared_ptr<ZenohDiscovery> discovery;
    std::shared_ptr<Detours> detours;
    ZenohPort::Handle state;
  };
  [[nodiscard]] Result<Session> make_session(ZenohMembership membership);
  Mutex opening_;
  std::map<std::string, Session> sessions_ TENDON_GUARDED_BY(opening_);
};

}  // namespace tendon::v0::detail
