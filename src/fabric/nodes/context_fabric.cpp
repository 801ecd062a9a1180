// SPDX-License-Identifier: Apache-2.0
#include "fabric/nodes/context_fabric.hpp"

#include <map>
#include <vector>

#include "fabric/discovery/node_environment.hpp"
#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

std::vector<std::string> routers_of(const NodeOptions& options) {
  return options.routers.empty() ? routers_of_environment() : options.routers;
}

std::string name_of_session(const std::string& domain, const std::vector<std::string>& routers) {
  std::string name = routers.empty() ? "star of " + domain : "routers";
  for (const std::string& router : routers) name += ' ' + router;
  return name;
}

// Opens the session for plain samples.
PlainEar::Open opener_of(const std::shared_ptr<ZenohPort>& client,
                         std::function<Result<std::unique_ptr<ZenohPort>>(Deadline)> open) {
  return [client, open = std::move(open)](Deadline when) -> Result<std::shared_ptr<ZenohPort>> {
    if (!open) return client;
    TENDON_TRY(opened, open(when));
    return std::shared_ptr<ZenohPort>(std::move(opened));
  };
}

}  // namespace

Result<std::shared_ptr<ContextFabric>> ContextFabric::of(
    const std::shared_ptr<ContextCore>& context, Profile profile) {
  TENDON_TRY(fabric, context->parts().of<ContextFabric>(
                         [&] { return std::make_shared<ContextFabric>(context, profile); }));
  if (fabric->profile() == profile) return fabric;
  return Error{ErrorCode::invalid_argument, "node.join",
               "this context has a node of another profile: all nodes of a context have one"};
}

Result<void> ContextFabric::open() {
  TENDON_CHECK(dialler_->start());
  TENDON_TRY(entities, Entities::create(context_, profile_));
  entities_ = std::move(entities);
  TENDON_TRY(peers, StaticDiscovery::create(context_, profile_, dialler_));
  peers_ = std::move(peers);
  if (const auto directory = runtime_directory(); !directory) {
    if (runtime_directory_is_asked_for()) return directory.error();
    context_->log(LogLevel::warn, "node.join", "no unix socket: " + directory.error().detail);
    return {};
  }
  TENDON_TRY(home, RuntimeHome::create(context_, dialler_, asked_runtime_directory()));
  TENDON_CHECK(home->serve(profile_, entities_));
  home_ = std::move(home);
  TENDON_TRY(hash, boot_hash(boot_id()));
  unix_on_ = hash;
  return {};
}

ContextFabric::~ContextFabric() {
  // The handlers may live a little longer, and another node may join this Context meanwhile.
  if (entities_ != nullptr) entities_->close();
  if (home_ != nullptr) home_->stop();
  if (peers_ != nullptr) peers_->close();
  plain_outlet_->stop();
  for (const auto& [name, session] : sessions_) session.detours->stop();
  dialler_->stop();  // discovery may have shares of it, and of itself, in callbacks
  context_->parts().end<ContextFabric>();
}

Result<ContextFabric::Session> ContextFabric::make_session(ZenohMembership membership) {
  const std::shared_ptr<ZenohPort> port = std::move(membership.client);
  TENDON_TRY(discovery, ZenohDiscovery::create(
                            port,
                            [context = context_](std::function<void()> run) {
                              context->schedule(std::move(run));
                            },
                            [context = context_](Deadline when, std::weak_ptr<Timed> timed) {
                              (void)context->add_timed(when, std::move(timed));
                            }));
  if (membership.server != nullptr) membership.server->watch_by(port);
  TENDON_TRY(detours, Detours::create(context_, {profile_}, entities_, dialler_, port));
  return Session{.server = std::move(membership.server),
                 .client = port,
                 .late = membership.late,
                 .ear = std::make_shared<PlainEar>(
                     opener_of(port, std::move(membership.open_for_plain)), dialler_),
                 .discovery = std::move(discovery),
                 .detours = std::move(detours),
                 .state = std::move(membership.state)};
}

Result<void> ContextFabric::adopt(const std::vector<std::string>& routers,
                                  ZenohMembership membership) {
  TENDON_TRY(session, make_session(std::move(membership)));
  const Lock lock(opening_);
  sessions_.insert_or_assign(name_of_session({}, routers), std::move(session));
  return {};
}

Result<ContextFabric::Ways> ContextFabric::ways_of(const NodeOptions& options, Deadline deadline) {
  Ways ways{.discoveries = {peers_}};
  if (options.peers && options.routers.empty()) return ways;
  const std::vector<std::string> routers = routers_of(options);
  const std::string name = name_of_session(options.domain, routers);
  // One after another: the second node of a star finds the session of the first.
  const Lock lock(opening_);
  const auto found = sessions_.find(name);
  Session* session = found == sessions_.end() ? nullptr : &found->second;
  if (session == nullptr) {
    if (routers.empty() && home_ == nullptr) {
      TENDON_CHECK(runtime_directory());
      return Error{ErrorCode::unreachable, "node.join",
                   "there was no runtime directory when the first node of this context joined"};
    }
    auto membership = routers.empty()
                          ? join_star(*home_, options.domain, options.discovery, deadline)
                          : join_routers(routers, options.discovery, deadline);
    if (!membership) {
      Error error = std::move(membership).error();
      error.where = "node.join";
      return error;
    }
    TENDON_TRY(made, make_session(*std::move(membership)));
    session = &sessions_.emplace(name, std::move(made)).first->second;
  }
  // Another node has begun it in the background.
  if (session->late != nullptr && options.discovery == DiscoveryNeed::required) {
    if (auto there = session->late->wait(deadline); !there) {
      Error error = std::move(there).error();
      error.where = "node.join";
      return error;
    }
  }
  ways.discoveries.push_back(session->discovery);
  ways.detours = session->detours;
  ways.zenoh = session->client;
  ways.ear = session->ear;
  if (options.routed) ways.detours->let_in_cables();
  return ways;
}

Result<std::shared_ptr<Acceptor>> ContextFabric::listen(const std::string& address) {
  return Acceptor::bind(context_, address, {profile_}, entities_);
}

}  // namespace tendon::v0::detail
