// SPDX-License-Identifier: Apache-2.0
#include "fabric/context_fabric.hpp"

#include <map>
#include <tendon/observe/log.hpp>
#include <vector>

#include "session/machine.hpp"

namespace tendon::v0::detail {

Result<std::shared_ptr<ContextFabric>> ContextFabric::of(
    const std::shared_ptr<ContextCore>& context, Profile profile) {
  // Never destroyed: nodes may end after static objects do.
  static Mutex& mutex = *new Mutex;
  static auto& known = *new std::map<const ContextCore*, std::weak_ptr<ContextFabric>>;
  const Lock lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = known.find(context.get()); found != known.end()) {
    if (auto fabric = found->second.lock()) {
      if (fabric->profile() == profile) return fabric;
      return Error{ErrorCode::invalid_argument, "node.join",
                   "this context has a node of another profile: all nodes of a context have one"};
    }
  }
  auto fabric = std::make_shared<ContextFabric>(context, profile);
  TENDON_CHECK(fabric->open());
  known[context.get()] = fabric;
  return fabric;
}

Result<void> ContextFabric::open() {
  TENDON_TRY(entities, Entities::create(context_, profile_));
  entities_ = std::move(entities);
  TENDON_TRY(discovery, StaticDiscovery::create(context_, profile_, dialler_));
  discovery_ = std::move(discovery);
  auto address = unix_address(context_->id());
  if (!address) {
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
    static auto& kept = *new std::vector<std::shared_ptr<Dialler>>;
    kept.push_back(dialler_);
    return;
  }
  if (acceptor_ != nullptr) acceptor_->close();
  if (discovery_ != nullptr) discovery_->close();
  dialler_->stop();  // discovery may have shares of it, and of itself, in callbacks
}

Result<std::shared_ptr<Acceptor>> ContextFabric::listen(const std::string& address) {
  return Acceptor::bind(context_, address, profile_, entities_);
}

Result<std::string> ContextFabric::unix_address(const ContextId& context) {
  TENDON_TRY(directory, runtime_directory());
  return "unix:" + directory + '/' + context.to_string() + ".node";
}

}  // namespace tendon::v0::detail
