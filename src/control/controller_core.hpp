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

#include "control/flows/flow_sender.hpp"
#include "control/flows/step_message.hpp"
#include "control/flows/step_sockets.hpp"
#include "control/flows/wake.hpp"
#include "control/heart.hpp"
#include "control/machine/standing.hpp"
#include "control/machine/step_ledger.hpp"
#include "control/machine/step_turns.hpp"
#include "control/machine/worker_seats.hpp"
#include "control/relay/reception.hpp"
#include "control/relay/store_book.hpp"
#include "control/relay/worker_pipe.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// The state of a Controller: its workers, the roster that runs, the steps in flight.
///
/// The roster's states: docs/control.md. Whatever a worker says moves them on the service thread; a
/// caller that waits reads the sockets, one at a time, and the others are woken by it.
///
/// Owns:    all that a Controller does.
/// Threads: safe everywhere. No lock of anything else is held while mutex_ is taken, but that of a
///          pipe may be taken under it.
/// Errors, Blocks: as Controller.
/// Cost:    as Controller.
class ControllerCore final : public PipeListener,
                             public std::enable_shared_from_this<ControllerCore> {
 public:
  ControllerCore(const ParallelLayout& layout, ControllerOptions options,
                 std::shared_ptr<StepNetwork> network, std::unique_ptr<UserEvent> wake,
                 std::string run_id);
  ~ControllerCore() override;

  /// Workers are let in from now on.
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
  /// One attempt of a call, which ends with end().
  [[nodiscard]] Result<void> broadcast(StepCall& call, Deadline deadline) TENDON_EXCLUDES(mutex_);
  void end(const StepCall& call) TENDON_EXCLUDES(mutex_);
  void give_back(std::vector<StepOutputs> outputs);
  [[nodiscard]] Result<std::vector<StepOutputs>> collect(std::uint64_t schedule_id,
                                                         Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> wait_for_microbatch(std::uint64_t schedule_id, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> cancel_step(std::uint64_t schedule_id, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<WorkerStatus> ask(GlobalRank rank, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  [[nodiscard]] ControllerStatus status() const TENDON_EXCLUDES(mutex_);
  [[nodiscard]] FlowStats stats() const TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> drain(Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<void> stop(std::string_view reason, Deadline deadline)
      TENDON_EXCLUDES(mutex_);
  /// The handle is gone: workers are told, nothing is waited for.
  void abandon() TENDON_EXCLUDES(mutex_);

  void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) override
      TENDON_EXCLUDES(mutex_);
  void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) override;
  void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) override
      TENDON_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  // New workers
  void seat(const std::shared_ptr<WorkerPipe>& pipe, const v1::Join& join) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> may_join(const v1::Join& join) const TENDON_REQUIRES(mutex_);
  /// A worker that enters the roster has opened the pipe for its tensors.
  [[nodiscard]] Result<void> take_tensor_pipe(const std::shared_ptr<WorkerPipe>& pipe,
                                              const v1::Word& word) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::string name_of(GlobalRank rank) const TENDON_REQUIRES(mutex_);

  // Rosters: roster.cpp
  [[nodiscard]] Result<void> form(Deadline deadline) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> fill_seats(Deadline deadline) TENDON_REQUIRES(mutex_);
  /// Workers that were started while the places of one roster are filled.
  struct Started {
    PeerIdentity after;  ///< the worker that was there before
    std::uint32_t times = 0;
  };
  [[nodiscard]] Result<void> start_missing(std::map<GlobalRank, Started>& started)
      TENDON_REQUIRES(mutex_);
  /// Asks those that hold up a roster whether they live, and gives up those that hang.
  void look_for_hung() TENDON_REQUIRES(mutex_);
  /// Why this one is given up now; empty: it is not.
  [[nodiscard]] std::string why_hung(const WorkerSeat& seat, Clock::time_point now) const
      TENDON_REQUIRES(mutex_);
  void give_up(GlobalRank rank, const std::string& why) TENDON_REQUIRES(mutex_);
  /// When look_for_hung() is called again.
  [[nodiscard]] Deadline next_look(Deadline deadline) const;
  [[nodiscard]] Result<void> open_roster() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> probe(Deadline deadline) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> compare_ready() const TENDON_REQUIRES(mutex_);
  void close_roster(Error why) TENDON_REQUIRES(mutex_);
  /// No further roster is formed: the workers are told why, and lose their places.
  void end_as_failed(Error why) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Error roster_error(std::string_view where) const TENDON_REQUIRES(mutex_);
  /// The same, with the death that was behind a failure; waits a little for it.
  [[nodiscard]] Error await_cause(std::string_view where, Deadline deadline)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Standing standing() const TENDON_REQUIRES(mutex_) {
    return {seats_, steps_, inputs_.sent(), options_.idle_heartbeat};
  }
  [[nodiscard]] bool runs() const TENDON_REQUIRES(mutex_) {
    return roster_.state == RosterState::running || roster_.state == RosterState::draining;
  }

  // What a seated worker says
  void heard(GlobalRank rank, v1::Word word) TENDON_REQUIRES(mutex_);
  void heard(GlobalRank rank, std::uint64_t roster, const v1::Heartbeat& heartbeat)
      TENDON_REQUIRES(mutex_);
  void failed(GlobalRank rank, const v1::StepFailed& failure) TENDON_REQUIRES(mutex_);
  void resend(GlobalRank rank, const v1::ResendRequest& request) TENDON_REQUIRES(mutex_);

  // Flows
  void arrived(v1::StepMessage message) TENDON_REQUIRES(mutex_);
  void apply(GlobalRank rank, v1::Flow flow) TENDON_REQUIRES(mutex_);
  /// A worker says that it has taken the inputs up to this number.
  void note_applied(GlobalRank rank, std::uint64_t sequence) TENDON_REQUIRES(mutex_);
  void ask_again(GlobalRank rank, v1::Flow flow, std::optional<MissingRange> missing)
      TENDON_REQUIRES(mutex_);
  /// Where the tensors of a step go, once for each host that is not this one.
  [[nodiscard]] std::vector<std::shared_ptr<WorkerPipe>> tensor_pipes() const
      TENDON_REQUIRES(mutex_);
  /// Reads the sockets, or waits while another caller does, until something changed or the deadline
  /// has passed.
  void service(Deadline deadline) TENDON_REQUIRES(mutex_);
  /// Waits for this step's turn, and until one more may be in flight.
  [[nodiscard]] Result<void> await_room(std::uint64_t schedule_id, Deadline deadline)
      TENDON_REQUIRES(mutex_);
  /// The number of the inputs that a rank must have taken before further ones are given out.
  [[nodiscard]] std::uint64_t must_be_applied() const TENDON_REQUIRES(mutex_);
  /// The ranks that are behind, and with what; empty: one more step may be given out.
  [[nodiscard]] std::string why_no_room() const TENDON_REQUIRES(mutex_);
  void changed() TENDON_REQUIRES(mutex_);
  [[nodiscard]] v1::Word word() const TENDON_REQUIRES(mutex_) { return word_of(roster_.id); }
  std::chrono::nanoseconds beat() TENDON_EXCLUDES(mutex_);

  const ParallelLayout layout_;
  const ControllerOptions options_;
  const std::shared_ptr<StepNetwork> network_;
  const std::unique_ptr<UserEvent> wake_;
  std::shared_ptr<ContextCore> context_;  // set before the first worker
  Reception reception_{
      {ErrorCode::server_busy, "control.join",
       "the controller has stopped, or too many connections to it do not say which "
       "rank they are"}};

  mutable Mutex mutex_;
  CondVar changed_;
  WorkerSeats seats_ TENDON_GUARDED_BY(mutex_);
  StoreBook store_ TENDON_GUARDED_BY(mutex_);
  struct Roster {
    RosterState state = RosterState::gathering;
    RosterId id = {};
    Error why_closed = {};
    Clock::time_point since = {};     // it was closed, or is formed
    Clock::time_point asked_at = {};  // those that hold up the next one
    /// A worker failed because another one died, perhaps: until then that death may be heard of,
    /// and is the reason.
    std::optional<std::chrono::steady_clock::time_point> cause_may_come_until = {};
  };
  Roster roster_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<ControllerSockets> sockets_ TENDON_GUARDED_BY(mutex_);
  bool reading_ TENDON_GUARDED_BY(mutex_) = false;  // a caller is in the sockets' wait()
  FlowSender inputs_ TENDON_GUARDED_BY(mutex_);
  StepLedger steps_ TENDON_GUARDED_BY(mutex_);
  StepTurns turns_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t nonce_ TENDON_GUARDED_BY(mutex_) = 0;  // of probes and pings, rising
  FlowStats stats_ TENDON_GUARDED_BY(mutex_);
  bool beats_fast_ TENDON_GUARDED_BY(mutex_) = false;  // a step was in flight, or was given out
  std::unique_ptr<Heart> heart_;                       // last: it ends before what it looks at
};

}  // namespace tendon::v0::detail
