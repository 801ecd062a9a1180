// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tendon/control/worker.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "control/flows/step_sockets.hpp"
#include "control/flows/wake.hpp"
#include "control/heart.hpp"
#include "control/machine/worker_machine.hpp"
#include "control/relay/host_relay.hpp"
#include "control/relay/pipe_store.hpp"
#include "control/relay/worker_pipe.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// The groups that exist, the smaller ones first.
[[nodiscard]] inline std::vector<std::shared_ptr<Group>> all_of(const WorkerGroups& groups) {
  std::vector all{groups.tensor, groups.kv, groups.pipeline, groups.world};
  std::erase(all, nullptr);
  return all;
}

/// The pipe, sockets, groups and waiting threads of a Worker; WorkerMachine makes the decisions.
///
/// Owns:    all resources of a Worker.
/// Threads: those of Worker. The service thread calls the PipeListener, the heartbeat's thread
///          beat(). mutex_ is taken while no other lock is held, but the lock of a pipe or a group
///          may be taken under it.
/// Errors, Blocks: as Worker.
/// Cost:    as Worker.
class WorkerCore final : public PipeListener, public std::enable_shared_from_this<WorkerCore> {
 public:
  WorkerCore(WorkerPlace place, std::shared_ptr<StepNetwork> network,
             std::unique_ptr<UserEvent> wake)
      : place_(std::move(place)), network_(std::move(network)), wake_(std::move(wake)) {}
  ~WorkerCore() override = default;

  /// Sends Join on this pipe, waits for the first roster and enters it.
  [[nodiscard]] Result<void> join(Context& context, Pipe pipe, Deadline deadline)
      TENDON_EXCLUDES(mutex_);

  [[nodiscard]] bool forked() const noexcept { return context_ != nullptr && context_->forked(); }
  /// `forked`, for every call in a child.
  [[nodiscard]] Result<void> check_process(std::string_view where) const {
    return forked() ? context_->usable(where) : Result<void>();
  }
  [[nodiscard]] const WorkerPlace& place() const noexcept { return place_; }
  [[nodiscard]] std::uint64_t roster() const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return machine_.id().roster;
  }
  [[nodiscard]] WorkerGroups groups() const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return groups_;
  }

  [[nodiscard]] Result<v0::Step> next_step(Deadline deadline) TENDON_EXCLUDES(mutex_);
  void give_back(v0::Step step) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    machine_.give_back(std::move(step));
  }
  [[nodiscard]] Result<void> send_outputs(const StepOutputs& outputs, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> signal_microbatch(std::uint64_t schedule_id, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> rebuild(const Error& cause, Deadline deadline) TENDON_EXCLUDES(mutex_);

  void set_load(double load) noexcept { load_.store(load, std::memory_order_relaxed); }
  [[nodiscard]] FlowStats stats() const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return machine_.stats();
  }
  void leave(std::string_view reason) TENDON_EXCLUDES(mutex_);

  void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) override
      TENDON_EXCLUDES(mutex_);
  void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) override
      TENDON_EXCLUDES(mutex_);
  void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) override
      TENDON_EXCLUDES(mutex_);

 private:
  class Turn;  // of the one thread that may call functions that move steps

  // Rosters: worker_roster.cpp
  [[nodiscard]] Result<void> enter(Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> await_rebuild(Deadline deadline) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<WorkerGroups> make_groups(Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<std::shared_ptr<Group>> join_world(Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> rebuild_world(Group& world, Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::shared_ptr<HostRelay> meet_host(const Group& world, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> await_probe(Deadline deadline) TENDON_REQUIRES(mutex_);
  void say_failed(const Error& cause) TENDON_REQUIRES(mutex_);
  [[nodiscard]] GroupsAtWork groups_at_work() const TENDON_REQUIRES(mutex_);

  /// Passes tensors of a step of this roster on, and keeps them for it.
  void tensors_came(std::uint64_t roster, std::uint64_t schedule_id, TensorDict tensors)
      TENDON_EXCLUDES(mutex_);
  /// Reads the sockets until something changed or the deadline has passed.
  void service(Deadline deadline) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> send(v1::Flow flow, v1::StepMessage message, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  /// Performs the machine's actions.
  void act() TENDON_REQUIRES(mutex_);
  void changed() TENDON_REQUIRES(mutex_);
  std::chrono::nanoseconds beat() TENDON_EXCLUDES(mutex_);

  const WorkerPlace place_;
  const std::shared_ptr<StepNetwork> network_;
  const std::unique_ptr<UserEvent> wake_;
  std::shared_ptr<WorkerPipe> pipe_;      // set before its first call
  std::shared_ptr<ContextCore> context_;  // likewise
  std::shared_ptr<PipeStore> store_;      // likewise: for making the world group
  std::atomic<double> load_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  WorkerMachine machine_ TENDON_GUARDED_BY(mutex_){place_};
  std::shared_ptr<HostRelay> relay_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerSockets> sockets_;  // of the thread that has the turn
  CurveKeys keys_;                          // likewise; of the next roster, or the running one
  WorkerGroups groups_ TENDON_GUARDED_BY(mutex_);
  bool has_turn_ TENDON_GUARDED_BY(mutex_) = false;    // a thread moves steps
  bool polls_ TENDON_GUARDED_BY(mutex_) = false;       // it is in the sockets' wait()
  bool beats_fast_ TENDON_GUARDED_BY(mutex_) = false;  // a step is at work, or was taken
  std::unique_ptr<Heart> heart_;
};

}  // namespace tendon::v0::detail
