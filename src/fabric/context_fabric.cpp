// SPDX-License-Identifier: Apache-2.0
#include "fabric/context_fabric.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tendon/observe/log.hpp>
#include <vector>

#include "fabric/zenoh_membership.hpp"
#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

// Which Contexts have one. An entry stays until the end of what it names is complete.
struct Registry {
  Mutex mutex;
  CondVar ended;
  std::map<const ContextCore*, std::weak_ptr<ContextFabric>> known TENDON_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<void>> kept;  // in a forked child, which has one thread
};

// Never destroyed: nodes may end after static objects do.
Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
}

// "HOST:PORT,HOST:PORT"
std::vector<std::string> routers_of_environment() {
  std::vector<std::string> routers;
  const char* const text = std::getenv("TENDON_ROUTER");
  for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    if (!one.empty()) routers.emplace_back(one);
  }
  return routers;
}

}  // namespace

Result<std::shared_ptr<ContextFabric>> ContextFabric::of(
    const std::shared_ptr<ContextCore>& context, Profile profile) {
  Registry& all = registry();
  std::shared_ptr<ContextFabric> fabric;  // behind the lock: its end takes it
  const Lock lock(all.mutex);
  for (auto found = all.known.find(context.get()); found != all.known.end();
       found = all.known.find(context.get())) {
    fabric = found->second.lock();
    if (fabric == nullptr) {
      all.ended.wait(all.mutex);  // the nodes before are leaving on another thread
      continue;
    }
    if (fabric->profile() == profile) return fabric;
    return Error{ErrorCode::invalid_argument, "node.join",
                 "this context has a node of another profile: all nodes of a context have one"};
  }
  fabric = std::make_shared<ContextFabric>(context, profile);
  all.known[context.get()] = fabric;
  TENDON_CHECK(fabric->open());
  return fabric;
}

Result<void> ContextFabric::open() {
  TENDON_TRY(entities, Entities::create(context_, profile_));
  entities_ = std::move(entities);
  TENDON_TRY(peers, StaticDiscovery::create(context_, profile_, dialler_));
  peers_ = std::move(peers);
  auto address = unix_address(context_->id());
  if (!address) {
    if (runtime_directory_is_asked_for()) return std::move(address).error();
    log(LogLevel::warn, "node.join", "no unix socket: " + address.error().detail);
    return {};
  }
  TENDON_TRY(acceptor, listen(*address));
  acceptor_ = std::move(acceptor);
  TENDON_TRY(hash, boot_hash(boot_id()));
  unix_on_ = hash;
  return {};
}

ContextFabric::~ContextFabric() {
  if (context_->forked()) {
    // Its threads are not here, and its lock may be held by one of them.
    registry().kept.push_back(dialler_);
    for (const auto& [name, session] : sessions_) registry().kept.push_back(session.server);
    return;
  }
  // The handlers may live a little longer, and another node join this Context meanwhile.
  if (entities_ != nullptr) entities_->close();
  if (acceptor_ != nullptr) acceptor_->close();
  if (peers_ != nullptr) peers_->close();
  dialler_->stop();  // discovery may have shares of it, and of itself, in callbacks
  Registry& all = registry();
  {
    const Lock lock(all.mutex);
    all.known.erase(context_.get());
  }
  all.ended.notify_all();
}

Result<std::vector<std::shared_ptr<Discovery>>> ContextFabric::ways_of(const NodeOptions& options,
                                                                       Deadline deadline) {
  std::vector<std::shared_ptr<Discovery>> ways{peers_};
  std::vector<std::string> routers = options.routers;
  if (options.peers && routers.empty()) return ways;
  if (routers.empty()) routers = routers_of_environment();
  std::string name = routers.empty() ? "star of " + options.domain : "routers";
  for (const std::string& router : routers) name += ' ' + router;
  // One after another: the second node of a star finds the session of the first.
  const Lock lock(opening_);
  auto found = sessions_.find(name);
  if (found == sessions_.end()) {
    auto membership =
        routers.empty() ? join_star(options.domain, deadline) : join_routers(routers, deadline);
    if (!membership) {
      Error error = std::move(membership).error();
      error.where = "node.join";
      return error;
    }
    TENDON_TRY(discovery, ZenohDiscovery::create(std::move(membership->client),
                                                 [context = context_](std::function<void()> run) {
                                                   context->schedule(std::move(run));
                                                 }));
    found = sessions_
                .emplace(name, Session{.server = std::move(membership->server),
                                       .discovery = std::move(discovery),
                                       .state = std::move(membership->state)})
                .first;
  }
  ways.push_back(found->second.discovery);
  return ways;
}

Result<std::shared_ptr<Acceptor>> ContextFabric::listen(const std::string& address) {
  return Acceptor::bind(context_, address, profile_, entities_);
}

Result<std::string> ContextFabric::unix_address(const ContextId& context) {
  TENDON_TRY(directory, runtime_directory());
  return "unix:" + directory + '/' + context.to_string() + std::string(kNodeSuffix);
}

}  // namespace tendon::v0::detail
