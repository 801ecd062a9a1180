// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/control/worker.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "control/flows/flow_receiver.hpp"
#include "control/flows/flow_sender.hpp"
#include "control/flows/step_message.hpp"
#include "control/flows/step_sockets.hpp"
#include "control/flows/wake.hpp"
#include "control/heart.hpp"
#include "control/relay/host_relay.hpp"
#include "control/relay/pipe_store.hpp"
#include "control/relay/worker_pipe.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// What a worker is, for good.
struct WorkerPlace {
  ParallelLayout layout;
  GlobalRank rank;
  ParallelCoordinates at;
  std::uint64_t incarnation = 0;
  std::string host;  ///< where the controller is
  WorkerOptions options;
  std::string address = {};  ///< of the controller; empty: its tensors come on the worker pipe
};

/// Those that there are, the smaller ones first.
[[nodiscard]] inline std::vector<std::shared_ptr<Group>> all_of(const WorkerGroups& groups) {
  std::vector all{groups.tensor, groups.kv, groups.pipeline, groups.world};
  std::erase(all, nullptr);
  return all;
}

/// How far a worker is.
///
///   joining --Welcome--> waiting --Rebuild--> entering --in--> running
///                           ^                                     |
///                           +------ rebuild() ------- closed <----+ RosterClosed
///   any --Stop--> stopping --steps done--> (end_of_stream)
///   any --pipe ended--> ended
enum class WorkerState : std::uint8_t {
  joining,
  waiting,   ///< holds nothing of a roster; Rebuild comes next
  entering,  ///< makes the groups and flows of the roster that it was told of
  running,
  closed,    ///< the roster is over; the program has not said rebuild()
  stopping,  ///< the controller stops: what it gave out before is still given to the program
  ended,     ///< the worker pipe has ended
};

/// The state of a Worker.
///
/// Owns:    all that a Worker does.
/// Threads: those of Worker. The service thread calls the PipeListener, the heartbeat's thread
///          beat(). No lock of anything else is held while mutex_ is taken, but that of a pipe or a
///          group may be taken under it.
/// Errors, Blocks: as Worker.
/// Cost:    as Worker.
class WorkerCore final : public PipeListener, public std::enable_shared_from_this<WorkerCore> {
 public:
  WorkerCore(WorkerPlace place, std::shared_ptr<StepNetwork> network,
             std::unique_ptr<UserEvent> wake)
      : place_(std::move(place)), network_(std::move(network)), wake_(std::move(wake)) {}
  ~WorkerCore() override;

  /// Says Join on this pipe, waits for the first roster and enters it.
  [[nodiscard]] Result<void> join(Context& context, Pipe pipe, Deadline deadline)
      TENDON_EXCLUDES(mutex_);

  [[nodiscard]] bool forked() const noexcept {
    return meeting_.context != nullptr && meeting_.context->forked();
  }
  /// `forked`, for every call in a child.
  [[nodiscard]] Result<void> check_process(std::string_view where) const {
    return forked() ? meeting_.context->usable(where) : Result<void>();
  }
  [[nodiscard]] const WorkerPlace& place() const noexcept { return place_; }
  [[nodiscard]] std::uint64_t roster() const TENDON_EXCLUDES(mutex_);
  [[nodiscard]] WorkerGroups groups() const TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool sends_outputs() const noexcept {
    return place_.at.tensor == 0 && place_.at.pipeline + 1 == place_.layout.sizes().pipeline;
  }
  [[nodiscard]] bool signals_microbatches() const noexcept { return place_.rank.value == 0; }

  [[nodiscard]] Result<Step> next_step(Deadline deadline) TENDON_EXCLUDES(mutex_);
  void give_back(Step step) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> send_outputs(const StepOutputs& outputs, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> signal_microbatch(std::uint64_t schedule_id, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> rebuild(const Error& cause, Deadline deadline) TENDON_EXCLUDES(mutex_);

  void set_load(double load) noexcept { load_.store(load, std::memory_order_relaxed); }
  [[nodiscard]] FlowStats stats() const TENDON_EXCLUDES(mutex_);
  void leave(std::string_view reason) TENDON_EXCLUDES(mutex_);

  void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) override
      TENDON_EXCLUDES(mutex_);
  void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) override
      TENDON_EXCLUDES(mutex_);
  void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) override
      TENDON_EXCLUDES(mutex_);

 private:
  using Inputs = FlowReceiver<v1::StepMessage>;
  class Turn;  // of the one thread that may call what moves steps

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
  [[nodiscard]] bool moves_steps() const TENDON_REQUIRES(mutex_) {
    return state_ == WorkerState::running || state_ == WorkerState::stopping;
  }
  void say_failed(const Error& cause) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Error state_error(std::string_view where) const TENDON_REQUIRES(mutex_);
  void abort_groups(const std::string& reason) TENDON_EXCLUDES(mutex_);

  // Words of the controller
  void heard(const v1::Heartbeat& heartbeat) TENDON_REQUIRES(mutex_);
  void resend(const v1::ResendRequest& request) TENDON_REQUIRES(mutex_);
  [[nodiscard]] v1::Word heartbeat(std::uint64_t ping) TENDON_REQUIRES(mutex_);
  /// The operation that a thread waits for in a group, and the ranks that it needs.
  struct Waiting {
    std::string text;
    std::vector<GlobalRank> ranks;
  };
  [[nodiscard]] Waiting waiting() const TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t collectives() const TENDON_REQUIRES(mutex_);

  // Flows
  void arrived(v1::StepMessage message) TENDON_REQUIRES(mutex_);
  /// Passes tensors of a step of this roster on, and keeps them for it.
  void tensors_came(std::uint64_t roster, std::uint64_t schedule_id, TensorDict tensors)
      TENDON_EXCLUDES(mutex_);
  void ask_again(std::optional<MissingRange> missing) TENDON_REQUIRES(mutex_);
  void service(Deadline deadline) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Step> take_step() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> send(v1::Flow flow, v1::StepMessage message, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] FlowSender& sender_of(v1::Flow flow) TENDON_REQUIRES(mutex_) {
    return flow == v1::FLOW_STEP_OUTPUTS ? flows_.outputs : flows_.microbatches;
  }
  [[nodiscard]] v1::Word word() const TENDON_REQUIRES(mutex_) { return word_of(id_); }
  void changed() TENDON_REQUIRES(mutex_);
  std::chrono::nanoseconds beat() TENDON_EXCLUDES(mutex_);

  const WorkerPlace place_;
  const std::shared_ptr<StepNetwork> network_;
  const std::unique_ptr<UserEvent> wake_;
  std::shared_ptr<WorkerPipe> pipe_;  // set before its first call
  struct Meeting {                    // where the world group is made
    std::shared_ptr<ContextCore> context;
    std::shared_ptr<PipeStore> store;
  };
  Meeting meeting_;  // likewise
  std::atomic<double> load_{0};

  mutable Mutex mutex_;
  CondVar changed_;
  WorkerState state_ TENDON_GUARDED_BY(mutex_) = WorkerState::joining;
  Error why_ TENDON_GUARDED_BY(mutex_);  // closed, stopping, ended
  RosterId id_ TENDON_GUARDED_BY(mutex_);
  struct Told {  // by the controller
    std::chrono::milliseconds idle_heartbeat{1000};
    std::chrono::milliseconds step_heartbeat{100};
    std::optional<v1::Word> rebuild;  // the newest, not entered yet
    std::uint64_t last_inputs = 0;    // stopping: the last sequence that it gave out
  };
  Told told_ TENDON_GUARDED_BY(mutex_);
  struct Flows {
    Inputs inputs;
    FlowSender outputs;
    FlowSender microbatches;
    std::optional<std::uint64_t> probe;           // its nonce, once it came
    std::map<std::uint64_t, TensorDict> tensors;  // by schedule_id
    std::uint64_t tensors_next = 0;  // the schedule_id of the next TensorDict on the pipe
    std::shared_ptr<HostRelay> relay;
    bool outputs_break = false;  // the controller asked for outputs: connect anew
    bool inputs_break = false;
    std::optional<Step> returned;  // it was taken, and is the next one again
  };
  Flows flows_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerSockets> sockets_;  // of the thread that has the turn
  CurveKeys keys_;                          // likewise; of the roster that comes next, or runs
  WorkerGroups groups_ TENDON_GUARDED_BY(mutex_);
  struct AtWork {
    std::uint64_t schedule_id = 0;
    std::shared_ptr<std::atomic<bool>> cancelled;
  };
  struct Threads {
    bool has_turn = false;    // one is in what moves steps
    bool polls = false;       // it is in the sockets' wait()
    bool beats_fast = false;  // that of heartbeats: a step is at work, or was taken
  };
  Threads threads_ TENDON_GUARDED_BY(mutex_);
  AtWork at_work_ TENDON_GUARDED_BY(mutex_);
  FlowStats stats_ TENDON_GUARDED_BY(mutex_);
  std::unique_ptr<Heart> heart_;
};

}  // namespace tendon::v0::detail
