// SPDX-License-Identifier: Apache-2.0
#include "fabric/context_fabric.hpp"

#include <map>
#include <tendon/observe/log.hpp>
#include <vector>

#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

// Which Contexts have one. An entry stays until the end of what it names is complete.
struct Registry {
  Mutex mutex;
  CondVar ended;
  std::map<const ContextCore*, std::weak_ptr<ContextFabric>> known TENDON_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Dialler>> kept;  // in a forked child, which has one thread
};

// Never destroyed: nodes may end after static objects do.
Registry& registry() {
  static Registry& registry = *new Registry;
  return registry;
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
    registry().kept.push_back(dialler_);
    return;
  }
  // The handlers may live a little longer, and another node join this Context meanwhile.
  if (entities_ != nullptr) entities_->close();
  if (acceptor_ != nullptr) acceptor_->close();
  if (discovery_ != nullptr) discovery_->close();
  dialler_->stop();  // discovery may have shares of it, and of itself, in callbacks
  Registry& all = registry();
  {
    const Lock lock(all.mutex);
    all.known.erase(context_.get());
  }
  all.ended.notify_all();
}

Result<std::shared_ptr<Acceptor>> ContextFabric::listen(const std::string& address) {
  return Acceptor::bind(context_, address, profile_, entities_);
}

Result<std::string> ContextFabric::unix_address(const ContextId& context) {
  TENDON_TRY(directory, runtime_directory());
  return "unix:" + directory + '/' + context.to_string() + ".node";
}

}  // namespace tendon::v0::detail
