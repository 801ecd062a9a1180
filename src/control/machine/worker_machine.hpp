// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tendon/control/step.hpp>
#include <tendon/control/worker_options.hpp>
#include <tendon/control/worker_status.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <utility>
#include <vector>

#include "control/flows/flow_sender.hpp"
#include "control/flows/resending.hpp"
#include "control/flows/step_sockets.hpp"

namespace tendon::v0::detail {

/// The facts of a worker that never change.
struct WorkerPlace {
  ParallelLayout layout;
  GlobalRank rank;
  ParallelCoordinates at;
  std::uint64_t incarnation = 0;
  std::string host;  ///< of the controller
  WorkerOptions options;
  std::string address = {};  ///< of the controller; empty: its tensors arrive on the worker pipe

  [[nodiscard]] bool sends_outputs() const noexcept {
    return at.tensor == 0 && at.pipeline + 1 == layout.sizes().pipeline;
  }
  [[nodiscard]] bool signals_microbatches() const noexcept { return rank.value == 0; }
};

/// The state of a worker.
///
///   joining --Welcome--> waiting --Rebuild--> entering --in--> running
///                           ^                                     |
///                           +------ rebuild() ------- closed <----+ RosterClosed
///   any --Stop--> stopping --steps done--> (end_of_stream)
///   any --pipe ended--> ended
enum class WorkerState : std::uint8_t {
  joining,
  waiting,   ///< holds nothing of a roster; Rebuild is next
  entering,  ///< makes the groups and flows of the announced roster
  running,
  closed,    ///< the roster has ended; the program has not said rebuild()
  stopping,  ///< the controller stops: the program still gets the earlier steps
  ended,     ///< the worker pipe has ended
};

/// A task for the worker's core.
struct WorkerAction {
  enum class Kind : std::uint8_t {
    say,           ///< sends the word to the controller
    reply,         ///< sends a heartbeat for this ping
    send_again,    ///< repeats what the word asks for
    abort_groups,  ///< for the reason
    fail,          ///< ends the roster, as by WorkerMachine::failed()
  };
  Kind kind;
  v1::Word word = {};
  Error why = {};
};

/// The activity of a worker's groups, for its heartbeat.
struct GroupsAtWork {
  std::string waiting = {};  ///< the operation for which a thread waits
  std::vector<GlobalRank> waiting_for = {};
  std::uint64_t collectives = 0;  ///< number that have ended in this roster
};

/// A worker in the rosters of its controller. Its input are words, messages and calls of the
/// program, its output actions. The state is a WorkerState.
///
/// Owns:    the step at work, arrived ones, messages that may be repeated; no pipe, lock or clock.
/// Threads: one at a time.
/// Errors:  those of the roster, by error().
/// Blocks:  never.
/// Cost:    a message in a queue.
class WorkerMachine {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `place` outlives it.
  explicit WorkerMachine(const WorkerPlace& place);

  [[nodiscard]] WorkerState state() const noexcept { return state_; }
  [[nodiscard]] bool moves_steps() const noexcept {
    return state_ == WorkerState::running || state_ == WorkerState::stopping;
  }
  [[nodiscard]] const RosterId& id() const noexcept { return id_; }
  [[nodiscard]] const FlowStats& stats() const noexcept { return stats_; }
  /// The error of a call that needs a running roster.
  [[nodiscard]] Error error(std::string_view where) const;
  /// Takes the tasks that the calls below have left, in this order.
  [[nodiscard]] std::vector<WorkerAction> take_actions() { return std::exchange(actions_, {}); }

  // Rosters

  /// The first word to the controller.
  [[nodiscard]] v1::Word join(const std::string& public_key) const;
  void hear(v1::Word word, Time now);
  /// Handles the end of the worker pipe.
  void ended(const Error& why);
  /// Leaves because the program needs it no longer.
  void leave(std::string_view reason);
  [[nodiscard]] bool may_enter() const {
    return state_ == WorkerState::waiting && rebuild_.has_value();
  }
  /// Begins to enter the announced roster. Returns the places of its flows.
  [[nodiscard]] StepEndpoints enter();
  [[nodiscard]] bool was_probed() const { return flows_.probe.has_value(); }
  /// Runs the roster, whose groups and flows stand. `ready` describes the groups.
  void ready(v1::Ready ready);
  /// Leaves the failed roster and waits for the next one. `public_key`: its key there.
  void failed(const Error& cause, const std::string& public_key,
              std::uint64_t last_complete_sequence);
  /// Closes the roster; rebuild() tells the controller.
  void close(Error why);

  // Steps

  /// Handles messages that arrived through the flow of this roster.
  void take(std::uint64_t roster, TakenMessages taken);
  /// Takes the step of the tensors that arrive next on the worker pipe; 0: none.
  [[nodiscard]] std::uint64_t take_announced() { return std::exchange(flows_.announced, 0); }
  void keep_tensors(std::uint64_t roster, std::uint64_t schedule_id, TensorDict tensors);
  /// The next step, once its tensors are there.
  [[nodiscard]] std::optional<v0::Step> next_step();
  /// The step whose tensors have not arrived.
  [[nodiscard]] std::optional<std::uint64_t> waits_for_tensors_of() const;
  /// True if the controller stops, and all its steps were taken.
  [[nodiscard]] bool is_done() const;
  /// Makes the step at work the next one again. In another roster it is void.
  void give_back(v0::Step step);
  void step_over(std::uint64_t schedule_id);
  /// The message with its envelope, and its number.
  [[nodiscard]] v1::StepMessage next_message(v1::Flow flow, v1::StepMessage message) const;
  /// Notes that this message was sent, and keeps it: the controller cannot ask for it before the
  /// next heartbeat.
  void sent(v1::Flow flow, FlowSender::Kept message);
  [[nodiscard]] const FlowSender& sender_of(v1::Flow flow) const {
    return flow == v1::FLOW_STEP_OUTPUTS ? flows_.outputs : flows_.microbatches;
  }
  void sent_again(std::uint64_t messages) { stats_.resent += messages; }
  /// True, once, if a message of this flow was lost: it must be connected anew.
  [[nodiscard]] bool take_break(v1::Flow flow) { return flows_.broken.erase(flow) != 0; }

  // Heartbeats

  [[nodiscard]] bool is_at_work() const noexcept { return at_work_ != 0; }
  [[nodiscard]] std::chrono::milliseconds beat_interval() const;
  [[nodiscard]] v1::Word heartbeat(std::uint64_t ping, const GroupsAtWork& groups,
                                   double load) const;

 private:
  using Kind = WorkerAction::Kind;

  void heard(const v1::Heartbeat& heartbeat, Time now);
  void heard_closed(std::uint64_t roster, Error why);
  void resend(v1::Word request);
  void arrived(v1::StepMessage message);
  void ask_again(const std::optional<MissingRange>& missing);
  void abort_groups(std::string reason);

  const WorkerPlace& place_;
  WorkerState state_ = WorkerState::joining;
  Error why_;  // closed, stopping, ended
  RosterId id_;
  v1::Welcome welcome_;
  std::optional<v1::Word> rebuild_;  // the newest announced one, not entered yet
  std::uint64_t last_inputs_ = 0;    // stopping: the last sequence that was sent
  struct Flows {                     // of one roster
    StepFlow inputs;
    FlowSender outputs;
    FlowSender microbatches;
    std::optional<std::uint64_t> probe;           // its nonce, once it arrived
    std::map<std::uint64_t, TensorDict> tensors;  // by schedule_id
    std::uint64_t announced = 0;                  // the step of the next TensorDict on the pipe
    std::set<v1::Flow> broken;
    std::optional<v0::Step> returned;  // it was taken, and is the next one again
  };
  Flows flows_;
  std::uint64_t at_work_ = 0;  // the step, 0: none
  std::shared_ptr<std::atomic<bool>> cancelled_;
  FlowStats stats_;
  std::vector<WorkerAction> actions_;
};

}  // namespace tendon::v0::detail
