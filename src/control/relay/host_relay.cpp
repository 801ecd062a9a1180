// SPDX-License-Identifier: Apache-2.0
#include "control/relay/host_relay.hpp"

#include <tendon/observe/log.hpp>
#include <utility>

#include "pipe/in_context.hpp"
#include "session/machine.hpp"
#include "session/nonce128.hpp"

namespace tendon::v0::detail {

HostRelay::~HostRelay() {
  if (leads_ != nullptr) leads_->end();
  if (follows_ != nullptr) follows_->end();
}

std::string HostRelay::key_of(GlobalRank first) const {
  return std::string(kStoreKeys) + std::to_string(place_.roster.roster) + "/" +
         std::to_string(first.value);
}

void HostRelay::meet(const std::shared_ptr<ContextCore>& context, RendezvousStore& store,
                     const std::vector<GroupMember>& world, Deadline deadline) {
  std::set<GlobalRank> host{place_.rank};
  for (const GroupMember& member : world)
    if (member.path && member.path->kind == PathKind::shm) host.insert(GlobalRank{member.place});
  if (host.size() == 1) return;
  const GlobalRank first = *host.begin();
  if (first == place_.rank) {
    host.erase(first);
    // Without it followers look in vain, and tell the controller.
    const auto led = lead(context, store, std::move(host), deadline);
    if (!led.has_value())
      log(LogLevel::warn, kRelay, "passes on no tensors: " + led.error().detail);
    return;
  }
  const auto followed =
      follow(context, store, first, earlier(deadline, Deadline(kFirstComesWithin)));
  if (followed.has_value()) {
    relay_ = first;
  } else {
    log(LogLevel::warn, kRelay,
        "gets its tensors from the controller, not from rank " + std::to_string(first.value) +
            " beside it: " + followed.error().detail);
  }
}

Result<void> HostRelay::lead(const std::shared_ptr<ContextCore>& context, RendezvousStore& store,
                             std::set<GlobalRank> followers, Deadline deadline) {
  TENDON_TRY(directory, runtime_directory());
  TENDON_TRY(token, random_nonce());
  const std::string path = rendezvous_path(directory, token);
  TENDON_TRY(listener, bind_in(context, "unix:" + path, {}));
  leads_ = std::make_shared<TensorRelay>(place_, std::move(followers));
  leads_->serve(std::move(listener));
  return store.set(key_of(place_.rank), path.substr(directory.size() + 1), deadline);
}

Result<void> HostRelay::follow(const std::shared_ptr<ContextCore>& context, RendezvousStore& store,
                               GlobalRank first, Deadline deadline) {
  TENDON_TRY(name, store.get(key_of(first), deadline));
  if (name.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Error{ErrorCode::protocol_violation, kRelay,
                 "what the store has is no name of a socket in the runtime directory"};
  }
  TENDON_TRY(directory, runtime_directory());
  TENDON_TRY(pipe, connect_in(context, "unix:" + directory + "/" + name, deadline,
                              {.absent = Absent::fail}));
  auto follows = std::make_shared<RelayedTensors>(place_, calls_);
  TENDON_CHECK(follows->follow(std::move(pipe), deadline));
  follows_ = std::move(follows);
  return {};
}

void HostRelay::pass_on(std::uint64_t schedule_id, const TensorDict& tensors) {
  if (leads_ != nullptr) leads_->pass_on(schedule_id, tensors);
}

void HostRelay::follow_controller(const std::shared_ptr<ContextCore>& context,
                                  std::string_view address, Profile profile, Deadline deadline) {
  if (relay_) return;
  const Deadline until = earlier(deadline, Deadline(kControllerRepliesWithin));
  auto follows = std::make_shared<RelayedTensors>(place_, calls_);
  const auto follow = [&]() -> Result<void> {
    TENDON_TRY(
        pipe, connect_in(context, address, until, {.security = {profile}, .absent = Absent::fail}));
    return follows->follow(std::move(pipe), until);
  };
  if (const auto followed = follow(); followed.has_value()) {
    follows_ = std::move(follows);
  } else {
    log(LogLevel::warn, kRelay,
        "gets its tensors on the worker pipe, where words wait behind them: " +
            followed.error().detail);
  }
}

std::optional<std::string> HostRelay::why_none_come() const {
  if (follows_ == nullptr) return std::nullopt;
  const auto why = follows_->why_ended();
  if (!why) return std::nullopt;
  return (relay_ ? "rank " + std::to_string(relay_->value) : std::string("the controller")) +
         ", and the pipe to it has ended: " + why->detail;
}

}  // namespace tendon::v0::detail
