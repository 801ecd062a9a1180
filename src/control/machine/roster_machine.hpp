// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/control/controller_options.hpp>
#include <tendon/control/step.hpp>
#include <tendon/control/worker_status.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

#include "control/flows/flow_sender.hpp"
#include "control/flows/resending.hpp"
#include "control/flows/step_message.hpp"
#include "control/flows/step_sockets.hpp"
#include "control/machine/step_ledger.hpp"
#include "control/machine/worker_seats.hpp"

namespace tendon::v0::detail {

/// A task for the controller's core at the pipes of a worker.
struct RosterAction {
  enum class Kind : std::uint8_t {
    say,          ///< sends the word
    say_if_idle,  ///< sends the word, unless others wait already
    send_again,   ///< repeats what the word asks for
    end_tensors,  ///< ends the pipe for its tensors
    give_up,      ///< the worker has lost its place, and hears why
  };
  Kind kind;
  GlobalRank rank;
  v1::Word word = {};
  Error why = {};
};

[[nodiscard]] constexpr bool runs(RosterState state) noexcept {
  return state == RosterState::running || state == RosterState::draining;
}

/// The rosters of a controller, and the steps of the running one. Its input are the words of its
/// workers and the calls of its program, its output actions. The states are those of RosterState,
/// and of SeatState for each rank: docs/control.md.
///
/// Owns:    the places of the workers, the steps that were sent; no pipe, lock or clock.
/// Threads: one at a time.
/// Errors:  those of the roster, by error(); a worker's Join is refused.
/// Blocks:  never.
/// Cost:    a look at each rank.
class RosterMachine {
 public:
  using Time = std::chrono::steady_clock::time_point;

  RosterMachine(const ParallelLayout& layout, ControllerOptions options, std::string run_id);

  [[nodiscard]] RosterState state() const noexcept { return state_; }
  [[nodiscard]] const RosterId& id() const noexcept { return id_; }
  [[nodiscard]] const WorkerSeats& seats() const noexcept { return seats_; }
  [[nodiscard]] ControllerStatus status(Time now) const;
  [[nodiscard]] const FlowStats& stats() const noexcept { return stats_; }
  /// The error of a call that needs a running roster.
  [[nodiscard]] Error error(std::string_view where) const;
  /// A worker may have failed because another one died. That death may become known before this
  /// time, and is then the reason of error().
  [[nodiscard]] std::optional<Time> cause_may_come_until() const {
    return state_ == RosterState::closed ? cause_may_come_until_ : std::nullopt;
  }
  /// Takes the tasks that the calls below have left, in this order.
  [[nodiscard]] std::vector<RosterAction> take_actions() { return std::exchange(actions_, {}); }

  // Workers

  /// Handles the first word of a worker, which gets the place of its rank. Returns the reply.
  [[nodiscard]] Result<v1::Word> join(const v1::Join& join, const PeerIdentity& peer, Time now);
  /// Handles the first word on a pipe for the tensors of a worker that enters the roster; likewise.
  [[nodiscard]] Result<v1::Word> join_tensors(const v1::Word& word, const PeerIdentity& peer);
  /// Handles any other word of a worker that has a place.
  void hear(GlobalRank rank, v1::Word word, Time now);
  /// Handles the end of its worker pipe.
  void lost(GlobalRank rank, const Error& why, Time now);
  /// Handles messages that arrived through the flows of this roster.
  void take(std::uint64_t roster, TakenMessages taken);
  void sent_again(std::uint64_t messages) { stats_.resent += messages; }

  // Rosters

  /// Waits for workers.
  void gather() { state_ = RosterState::gathering; }
  /// Tells the workers, which all wait, to enter the next roster, whose flows are here.
  void open(const StepEndpoints& endpoints, Time now);
  /// The message that must reach each worker.
  [[nodiscard]] v1::StepMessage probe();
  /// Runs the roster: all workers are ready. Errors: mismatch, which closes the roster.
  [[nodiscard]] Result<void> run(Time now);
  /// Asks workers that hold up a roster whether they live, and replaces those that hang.
  void look_for_hung(Time now);
  /// Forms no further roster: the workers are told why, and lose their places.
  void fail(const Error& why);
  void drain();
  /// `last_inputs`: the number of the last inputs that workers perform.
  void stop(std::string_view reason, std::uint64_t last_inputs);

  // Steps

  /// The message of the next step.
  [[nodiscard]] v1::StepMessage next_inputs(const StepInputs& inputs) const;
  /// Notes that this message was sent to all workers.
  void given(std::uint64_t schedule_id, FlowSender::Kept message, Time now);
  /// The messages that are kept.
  [[nodiscard]] const FlowSender& inputs() const noexcept { return inputs_; }
  [[nodiscard]] StepLedger& steps() noexcept { return steps_; }
  /// The ranks that are behind, and with what; empty: one more step may be sent.
  [[nodiscard]] std::string why_no_room() const;
  /// The ranks that get the tensors of a step from the controller. Each passes them on to the other
  /// workers of its host.
  [[nodiscard]] std::vector<GlobalRank> tensor_ranks() const;
  void cancel(std::uint64_t schedule_id);
  /// Asks a worker. Returns the number that its reply will have in WorkerSeat::ping.
  [[nodiscard]] std::uint64_t ping(GlobalRank rank);
  /// Sends heartbeats. True: a step is in flight.
  bool beat();

 private:
  using Kind = RosterAction::Kind;

  void tell_all(const v1::Word& word);
  void close(Error why, Time now);
  void heard(GlobalRank rank, std::uint64_t roster, const v1::Heartbeat& heartbeat, Time now);
  void failed(GlobalRank rank, const v1::StepFailed& failure, Time now);
  void arrived(v1::StepMessage message);
  /// Notes a worker's word that it has taken the inputs up to this number.
  void note_applied(GlobalRank rank, std::uint64_t sequence);
  void ask_again(GlobalRank rank, v1::Flow flow, const std::optional<MissingRange>& missing);

  const ParallelLayout layout_;
  const ControllerOptions options_;
  RosterState state_ = RosterState::gathering;
  RosterId id_;
  Error why_closed_;
  Time since_ = {};     // the roster was closed, or is formed
  Time asked_at_ = {};  // workers that hold up the next one
  std::optional<Time> cause_may_come_until_;
  WorkerSeats seats_;
  FlowSender inputs_;
  StepLedger steps_;
  std::uint64_t nonce_ = 0;  // of probes and pings, rising
  FlowStats stats_;
  std::vector<RosterAction> actions_;
};

}  // namespace tendon::v0::detail
