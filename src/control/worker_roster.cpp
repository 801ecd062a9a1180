// SPDX-License-Identifier: Apache-2.0
// Rosters of a worker: how it enters and leaves one.
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "control/worker_core.hpp"
#include "session/own_host.hpp"
#include "session/proofs.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::chrono::milliseconds kRebuildPiece{500};
constexpr std::chrono::milliseconds kJoinPiece{2000};
constexpr std::chrono::milliseconds kJoinPause{20};

}  // namespace

void WorkerCore::say_failed(const Error& cause) {
  // New keys with each roster; without them a controller of other hosts refuses this worker.
  if (auto keys = network_->make_keys(); keys.has_value()) keys_ = *std::move(keys);
  const auto& world = groups_.world;
  machine_.failed(cause, keys_.public_key, world == nullptr ? 0 : world->last_complete_sequence());
  relay_ = nullptr;
  act();
}

Result<void> WorkerCore::enter(Deadline deadline) {
  while (true) {
    StepEndpoints endpoints;
    {
      const Lock lock(mutex_);
      TENDON_CHECK(await_rebuild(deadline));
      endpoints = machine_.enter();
      relay_ = nullptr;
    }
    sockets_ = nullptr;  // those of the roster before
    Result<WorkerGroups> groups = make_groups(deadline);
    Result<std::shared_ptr<WorkerSockets>> sockets =
        groups.has_value() ? network_->connect(endpoints, place_.host, keys_)
                           : Result<std::shared_ptr<WorkerSockets>>(groups.error());
    auto relay = sockets.has_value() ? meet_host(*groups->world, deadline) : nullptr;
    const Lock lock(mutex_);
    if (sockets.has_value()) {
      relay_ = std::move(relay);
      sockets_ = *std::move(sockets);
      Result<void> probed = await_probe(deadline);
      if (probed.has_value()) return {};
      if (machine_.state() == WorkerState::entering) say_failed(probed.error());
      if (probed.error().code == ErrorCode::timeout) return probed;
    } else {
      const Error why = sockets.error();
      if (machine_.state() == WorkerState::entering || machine_.state() == WorkerState::closed)
        say_failed(why);
      if (why.code == ErrorCode::timeout || why.code == ErrorCode::not_supported) return why;
    }
    if (machine_.state() == WorkerState::closed) say_failed(machine_.error("control.roster"));
    // The controller forms another roster, and says so.
  }
}

Result<void> WorkerCore::await_rebuild(Deadline deadline) {
  while (!machine_.may_enter()) {
    const WorkerState state = machine_.state();
    if (state == WorkerState::ended || state == WorkerState::stopping)
      return machine_.error("control.roster");
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.roster",
                   state == WorkerState::joining
                       ? "the controller did not say whether there is a place for this worker"
                       : "the controller has no full roster: other workers are missing"};
    }
    (void)changed_.wait_until(mutex_, deadline);
  }
  return {};
}

Result<std::shared_ptr<Group>> WorkerCore::join_world(Deadline deadline) {
  GroupOptions options{.name = "world"};
  options.security.profile = profile_of(place_.options);
  options.listen = place_.options.listen;
  // With a store nobody knows an interface: the one to the controller is the one that others reach.
  if (const char* const told = std::getenv("TENDON_LISTEN");
      options.listen.empty() && (told == nullptr || *told == '\0')) {
    if (const std::string own = own_host_towards(place_.host, deadline); !own.empty())
      options.listen = own + ":0";
  }
  // In pieces that grow: a roster that is closed meanwhile ends it, and slow workers do not leave
  // each other for ever.
  for (auto piece = kJoinPiece;; piece *= 2) {
    auto world = Group::join(
        context_,
        Rendezvous::through(store_, GroupRank{place_.rank.value}, place_.layout.world_size()),
        earlier(deadline, Deadline(piece)), options);
    if (world.has_value()) return std::make_shared<Group>(*std::move(world));
    const ErrorCode code = world.error().code;
    const bool may_come = code == ErrorCode::timeout || code == ErrorCode::peer_lost;
    if (!may_come || deadline.has_passed()) return std::move(world).error();
    const Lock lock(mutex_);
    if (machine_.state() != WorkerState::entering) return machine_.error("control.roster");
    (void)changed_.wait_until(mutex_, earlier(deadline, Deadline(kJoinPause)));
  }
}

Result<void> WorkerCore::rebuild_world(Group& world, Deadline deadline) {
  // In pieces: one more loss closes the roster, and ends the wait for the lost member.
  while (true) {
    const auto rebuilt = world.rebuild(earlier(deadline, Deadline(kRebuildPiece)));
    if (rebuilt.has_value()) return {};
    if (rebuilt.error().code != ErrorCode::timeout || deadline.has_passed()) {
      return rebuilt.error();
    }
    const Lock lock(mutex_);
    if (machine_.state() != WorkerState::entering) return machine_.error("control.roster");
  }
}

Result<WorkerGroups> WorkerCore::make_groups(Deadline deadline) {
  WorkerGroups groups;
  WorkerGroups before;
  {
    const Lock lock(mutex_);
    before = std::exchange(groups_, {});
    groups.world = before.world;
    groups_.world = before.world;  // so that it can be aborted meanwhile
  }
  if (groups.world != nullptr) {
    if (auto rebuilt = rebuild_world(*groups.world, deadline); !rebuilt.has_value()) {
      // Without its links to living members it may be left out, or alone: only the controller knows
      // both sides. In the next attempt it joins as a newcomer does.
      if (rebuilt.error().code == ErrorCode::peer_lost ||
          rebuilt.error().code == ErrorCode::no_quorum) {
        {
          const Lock lock(mutex_);
          groups_.world = nullptr;
        }
        // The program may have handles of them.
        for (const auto& group : all_of(before)) group->leave();
      }
      return rebuilt.error();
    }
  } else {
    TENDON_TRY(world, join_world(deadline));
    groups.world = std::move(world);
    const Lock lock(mutex_);
    groups_.world = groups.world;
  }
  const auto split = [&](Result<std::vector<GlobalRank>> members,
                         std::string_view name) -> Result<std::shared_ptr<Group>> {
    if (!members.has_value()) return members.error();
    TENDON_TRY(part, groups.world->split(*members, deadline, name));
    return std::make_shared<Group>(std::move(part));
  };
  TENDON_TRY(tensor, split(place_.layout.tensor_group_of(place_.rank), "tensor"));
  TENDON_TRY(kv, split(place_.layout.kv_group_of(place_.rank), "kv"));
  TENDON_TRY(pipeline, split(place_.layout.pipeline_group_of(place_.rank), "pipeline"));
  groups.tensor = std::move(tensor);
  groups.kv = std::move(kv);
  groups.pipeline = std::move(pipeline);
  const Lock lock(mutex_);
  groups_ = groups;
  return groups;
}

std::shared_ptr<HostRelay> WorkerCore::meet_host(const Group& world, Deadline deadline) {
  RosterId id;
  {
    const Lock lock(mutex_);
    id = machine_.id();
  }
  const std::weak_ptr<WorkerCore> weak = weak_from_this();
  auto relay = std::make_shared<HostRelay>(
      RelayPlace{id, place_.rank},
      RelayedTensors::Calls{
          .came =
              [weak, roster = id.roster](std::uint64_t schedule_id, TensorDict tensors) {
                if (const auto self = weak.lock())
                  self->tensors_came(roster, schedule_id, std::move(tensors));
              },
          .ended =
              [weak] {
                const auto self = weak.lock();
                if (self == nullptr) return;
                const Lock lock(self->mutex_);
                self->changed();
              }});
  // A worker that shares memory with the controller gets tensors there.
  if (pipe_->path().kind != PathKind::shm)
    relay->meet(context_, *store_, world.members(), deadline);
  if (!place_.address.empty())
    relay->follow_controller(context_, place_.address, profile_of(place_.options), deadline);
  return relay;
}

Result<void> WorkerCore::await_probe(Deadline deadline) {
  while (machine_.state() == WorkerState::entering && !machine_.was_probed()) {
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.roster",
                   "no probe of the controller came through the flow of StepInputs"};
    }
    service(deadline);
  }
  if (machine_.state() != WorkerState::entering) return machine_.error("control.roster");
  v1::Ready ready;
  ready.set_group_epoch(groups_.world->epoch_number());
  ready.set_members(groups_.world->size());
  if (relay_ != nullptr && relay_->relay()) ready.set_relay(relay_->relay()->value);
  machine_.ready(std::move(ready));
  act();
  return {};
}

}  // namespace tendon::v0::detail
