// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/control/controller_options.hpp>
#include <tendon/control/step.hpp>
#include <tendon/control/worker_status.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/pipe/listener.hpp>
#include <vector>

#include "control/flows/step_sockets.hpp"
#include "control/flows/wake.hpp"
#include "control/heart.hpp"
#include "control/machine/roster_machine.hpp"
#include "control/machine/step_turns.hpp"
#include "control/relay/reception.hpp"
#include "control/relay/store_book.hpp"
#include "control/relay/worker_pipe.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// The pipes, sockets and waiting threads of a Controller; RosterMachine makes the decisions.
///
/// Words of workers reach the machine on the service thread. One waiting caller at a time reads the
/// sockets, and wakes the others.
///
/// Owns:    all resources of a Controller.
/// Threads: safe everywhere. mutex_ is taken while no other lock is held, but the lock of a pipe
///          may be taken under it.
/// Errors, Blocks: as Controller.
/// Cost:    as Controller.
class ControllerCore final : public PipeListener,
                             public std::enable_shared_from_this<ControllerCore> {
 public:
  ControllerCore(const ParallelLayout& layout, ControllerOptions options,
                 std::shared_ptr<StepNetwork> network, std::unique_ptr<UserEvent> wake,
                 std::string run_id);
  ~ControllerCore() override = default;

  /// Admits workers from now on.
  [[nodiscard]] Result<void> serve(std::shared_ptr<ContextCore> context, Listener listener);
  [[nodiscard]] bool forked() const noexcept { return context_->forked(); }
  /// `forked`, for every call in a child.
  [[nodiscard]] Result<void> check_process(std::string_view where) const {
    return forked() ? context_->usable(where) : Result<void>();
  }

  [[nodiscard]] const ParallelLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::string address() const { return reception_.address(); }

  [[nodiscard]] Result<void> wait_for_workers(Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> rebuild(Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> broadcast(const StepInputs& inputs, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  /// Makes one attempt of a call, which ends with end().
  [[nodiscard]] Result<void> broadcast(StepCall& call, Deadline deadline) TENDON_EXCLUDES(mutex_);
  void end(const StepCall& call) TENDON_EXCLUDES(mutex_);
  void give_back(std::vector<StepOutputs> outputs) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    machine_.steps().put_back(std::move(outputs));
  }
  [[nodiscard]] Result<std::vector<StepOutputs>> collect(std::uint64_t schedule_id,
                                                         Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> wait_for_microbatch(std::uint64_t schedule_id, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> cancel_step(std::uint64_t schedule_id, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<WorkerStatus> ask(GlobalRank rank, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] ControllerStatus status() const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return machine_.status(std::chrono::steady_clock::now());
  }
  [[nodiscard]] FlowStats stats() const TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    return machine_.stats();
  }
  [[nodiscard]] Result<void> drain(Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> stop(std::string_view reason, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  /// Called when the handle is dropped: workers are told, nothing is awaited.
  void abandon() TENDON_EXCLUDES(mutex_);

  void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) override
      TENDON_EXCLUDES(mutex_);
  void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) override;
  void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) override
      TENDON_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  // Worker pipes
  [[nodiscard]] std::optional<GlobalRank> rank_of(const WorkerPipe& pipe) const
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> let_in(const std::shared_ptr<WorkerPipe>& pipe, const v1::Word& word)
      TENDON_REQUIRES(mutex_);
  void hear(GlobalRank rank, v1::Word word) TENDON_REQUIRES(mutex_);
  /// Voids tensors that have not left.
  void end_tensors(GlobalRank rank) TENDON_REQUIRES(mutex_);
  /// The pipes for the tensors of a step, one for each host that is not this one.
  [[nodiscard]] std::vector<std::shared_ptr<WorkerPipe>> tensor_pipes() const
      TENDON_REQUIRES(mutex_);
  /// Performs the machine's actions, and wakes the calls that wait for a change.
  void act() TENDON_REQUIRES(mutex_);
  void changed() TENDON_REQUIRES(mutex_);
  std::chrono::nanoseconds beat() TENDON_EXCLUDES(mutex_);

  // Rosters
  [[nodiscard]] Result<void> form(Deadline deadline) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> fill_seats(Deadline deadline) TENDON_REQUIRES(mutex_);
  /// Workers that were started while the places of one roster are filled.
  struct Started {
    PeerIdentity after;  ///< the worker that was there before
    std::uint32_t times = 0;
  };
  [[nodiscard]] Result<void> start_missing(std::map<GlobalRank, Started>& started)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> open_roster() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> probe(Deadline deadline) TENDON_REQUIRES(mutex_);
  /// The roster's error, with the death that caused a failure; waits a little for it.
  [[nodiscard]] Error await_cause(std::string_view where, Deadline deadline)
      TENDON_REQUIRES(mutex_);

  // Steps
  /// Reads the sockets, or waits while another caller does, until something changed or the deadline
  /// has passed.
  void service(Deadline deadline) TENDON_REQUIRES(mutex_);
  /// Waits for this step's turn, and until one more may be in flight.
  [[nodiscard]] Result<void> await_room(std::uint64_t schedule_id, Deadline deadline)
      TENDON_REQUIRES(mutex_);

  const ParallelLayout layout_;
  const ControllerOptions options_;
  const std::shared_ptr<StepNetwork> network_;
  const std::unique_ptr<UserEvent> wake_;
  std::shared_ptr<ContextCore> context_;  // set before the first worker
  Reception reception_{{ErrorCode::server_busy, "control.join",
                        "the controller has stopped, or too many connections to it do not say "
                        "which rank they are"}};

  mutable Mutex mutex_;
  CondVar changed_;
  RosterMachine machine_ TENDON_GUARDED_BY(mutex_);
  struct Pipes {
    std::shared_ptr<WorkerPipe> words;    // null: the place is empty
    std::shared_ptr<WorkerPipe> tensors;  // of this roster; null: `words` carries tensors
  };
  std::vector<Pipes> pipes_ TENDON_GUARDED_BY(mutex_);  // by rank
  StoreBook store_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<ControllerSockets> sockets_ TENDON_GUARDED_BY(mutex_);
  bool reading_ TENDON_GUARDED_BY(mutex_) = false;  // a caller is in the sockets' wait()
  StepTurns turns_ TENDON_GUARDED_BY(mutex_);
  bool beats_fast_ TENDON_GUARDED_BY(mutex_) = false;  // a step was in flight, or was broadcast
  std::unique_ptr<Heart> heart_;  // last: it ends before the parts that it reads
};

}  // namespace tendon::v0::detail
