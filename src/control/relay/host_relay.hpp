// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/group/group.hpp>
#include <tendon/group/rendezvous.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "control/relay/tensor_relay.hpp"

namespace tendon::v0::detail {

class ContextCore;

/// The ways of tensors to a worker and its neighbours, in one roster: it receives them from the
/// controller, and may pass them on, or from another worker of its host.
///
/// Owns:    its end of the relay, the pipe on which its tensors arrive.
/// Threads: meet() and follow_controller() before the others, which are safe everywhere.
/// Errors:  none: a worker that finds no first one gets its tensors from the controller.
/// Blocks:  meet(), follow_controller(): at most kFirstComesWithin and kControllerRepliesWithin,
///          and not beyond their deadlines.
/// Cost:    as TensorRelay.
class HostRelay {
 public:
  /// How long a follower looks for the first worker: all of them leave the same groups.
  static constexpr std::chrono::milliseconds kFirstComesWithin{2000};
  /// How long a controller may take to accept one more pipe of a worker that it knows.
  static constexpr std::chrono::milliseconds kControllerRepliesWithin{10'000};
  /// The prefix of its keys in the store; the controller forgets them with their roster.
  static constexpr std::string_view kStoreKeys = "relay/";

  HostRelay(RelayPlace place, RelayedTensors::Calls calls)
      : place_(std::move(place)), calls_(std::move(calls)) {}
  HostRelay(const HostRelay&) = delete;
  HostRelay& operator=(const HostRelay&) = delete;
  ~HostRelay();

  /// Finds the relay among the workers that share memory with this one. The first one listens in
  /// the runtime directory, which other users cannot enter; the store has the name of its socket
  /// there.
  void meet(const std::shared_ptr<ContextCore>& context, RendezvousStore& store,
            const std::vector<GroupMember>& world, Deadline deadline);
  /// Opens a pipe for tensors to the controller, unless another worker passes them on. If that
  /// fails they arrive on the worker pipe, and words behind them.
  void follow_controller(const std::shared_ptr<ContextCore>& context, std::string_view address,
                         Profile profile, Deadline deadline);
  /// The worker that passes tensors on to this one.
  [[nodiscard]] std::optional<GlobalRank> relay() const noexcept { return relay_; }
  /// Passes tensors to the followers, if this is the first worker.
  void pass_on(std::uint64_t schedule_id, const TensorDict& tensors);
  /// The sender of missing tensors, and why they do not arrive; empty while they may.
  [[nodiscard]] std::optional<std::string> why_none_come() const;

 private:
  [[nodiscard]] Result<void> lead(const std::shared_ptr<ContextCore>& context,
                                  RendezvousStore& store, std::set<GlobalRank> followers,
                                  Deadline deadline);
  [[nodiscard]] Result<void> follow(const std::shared_ptr<ContextCore>& context,
                                    RendezvousStore& store, GlobalRank first, Deadline deadline);
  [[nodiscard]] std::string key_of(GlobalRank first) const;

  const RelayPlace place_;
  const RelayedTensors::Calls calls_;
  std::shared_ptr<TensorRelay> leads_;
  std::shared_ptr<RelayedTensors> follows_;
  std::optional<GlobalRank> relay_;
};

}  // namespace tendon::v0::detail
