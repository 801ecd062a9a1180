// SPDX-License-Identifier: Apache-2.0
#include "control/controller_core.hpp"

#include <algorithm>
#include <utility>

#include "control/flows/resending.hpp"
#include "core/text.hpp"
#include "runtime/strangers.hpp"

namespace tendon::v0::detail {
namespace {

// From a collective that fails because a member died to the end of that member's worker pipe.
constexpr std::chrono::milliseconds kCauseComesWithin{100};

std::string behind(std::uint64_t step, std::uint64_t first, const std::string& why) {
  return "step " + std::to_string(step) + " waits for step " + std::to_string(first) +
         ", which another thread gives out" + (why.empty() ? "" : "; " + why);
}

}  // namespace

ControllerCore::ControllerCore(const ParallelLayout& layout, ControllerOptions options,
                               std::shared_ptr<StepNetwork> network,
                               std::unique_ptr<UserEvent> wake, std::string run_id)
    : layout_(layout),
      options_(std::move(options)),
      network_(std::move(network)),
      wake_(std::move(wake)),
      seats_(layout.world_size()),
      store_(layout.world_size()),
      roster_{.id = {.run = std::move(run_id), .roster = 0}},
      steps_(layout) {}

ControllerCore::~ControllerCore() = default;

// --- New workers

Result<void> ControllerCore::serve(std::shared_ptr<ContextCore> context, Listener listener) {
  TENDON_TRY(heart, Heart::start([this] { return beat(); }));
  heart_ = std::move(heart);
  context_ = std::move(context);
  reception_.open(std::move(listener), weak_from_this());
  return {};
}

Result<void> ControllerCore::may_join(const v1::Join& join) const {
  const auto refuse = [](std::string text) {
    return Error{ErrorCode::invalid_argument, "control.join", std::move(text)};
  };
  if (roster_.state == RosterState::failed) return roster_error("control.join");
  if (join.version() != kControlVersion) {
    return Error{ErrorCode::version_mismatch, "control.join",
                 "the worker speaks version " + std::to_string(join.version()) +
                     " of the control protocol, the controller " + std::to_string(kControlVersion)};
  }
  const ParallelSizes& sizes = layout_.sizes();
  if (join.tensor_parallel_size() != sizes.tensor ||
      join.pipeline_parallel_size() != sizes.pipeline || join.kv_parallel_size() != sizes.kv) {
    return refuse("the worker's layout is tensor " + std::to_string(join.tensor_parallel_size()) +
                  ", pipeline " + std::to_string(join.pipeline_parallel_size()) + ", kv " +
                  std::to_string(join.kv_parallel_size()) + "; the controller's is tensor " +
                  std::to_string(sizes.tensor) + ", pipeline " + std::to_string(sizes.pipeline) +
                  ", kv " + std::to_string(sizes.kv));
  }
  if (join.rank() >= seats_.size()) {
    return refuse("rank " + std::to_string(join.rank()) + " of " + std::to_string(seats_.size()) +
                  " workers");
  }
  if (join.schema_hash() != options_.schema_hash) {
    return refuse("the worker's messages have the schema hash " +
                  std::to_string(join.schema_hash()) + ", the controller's " +
                  std::to_string(options_.schema_hash));
  }
  if (seats_.at({join.rank()}).state != SeatState::empty) {
    return refuse(name_of({join.rank()}) + " is there already");
  }
  return {};
}

void ControllerCore::seat(const std::shared_ptr<WorkerPipe>& pipe, const v1::Join& join) {
  WorkerSeat& seat = seats_.at({join.rank()});
  seat = WorkerSeat{};
  seat.state = SeatState::waiting;
  seat.pipe = pipe;
  seat.incarnation = join.incarnation();
  seat.public_key = join.public_key();
  seat.heard.rank = {join.rank()};
  seat.heard.identity = pipe->peer();
  seat.heard_at = Clock::now();
  seat.begin_work(seat.heard_at);
  v1::Word welcome = word();
  welcome.mutable_welcome()->set_idle_heartbeat_ms(
      static_cast<std::uint32_t>(options_.idle_heartbeat.count()));
  welcome.mutable_welcome()->set_step_heartbeat_ms(
      static_cast<std::uint32_t>(options_.step_heartbeat.count()));
  pipe->send(welcome);
  changed();
}

Result<void> ControllerCore::take_tensor_pipe(const std::shared_ptr<WorkerPipe>& pipe,
                                              const v1::Word& word) {
  const std::uint32_t rank = word.relay_join().rank();
  WorkerSeat* const seat = rank < seats_.size() ? &seats_.at({rank}) : nullptr;
  if (word.run_id() != roster_.id.run || word.roster() != roster_.id.roster || seat == nullptr ||
      seat->state != SeatState::forming || seat->tensors != nullptr ||
      seat->pipe->peer().context != pipe->peer().context) {
    return Error{ErrorCode::permission_denied, "control.join",
                 "that is no worker which enters the roster, or it has opened such a pipe before"};
  }
  seat->tensors = pipe;
  v1::Word welcome = this->word();
  welcome.mutable_relay_welcome();
  pipe->send(welcome);
  return {};
}

std::string ControllerCore::name_of(GlobalRank rank) const {
  return "rank " + std::to_string(rank.value) + " (" + seats_.at(rank).heard.identity.to_string() +
         ")";
}

// --- What comes on worker pipes

void ControllerCore::on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) {
  std::optional<Error> refused;
  {
    const Lock lock(mutex_);
    if (const auto rank = seats_.rank_of(*pipe)) {
      heard(*rank, std::move(word));
    } else if (reception_.leave(pipe)) {
      if (word.has_relay_join()) {
        if (auto taken = take_tensor_pipe(pipe, word); !taken.has_value()) refused = taken.error();
      } else if (!word.has_join()) {
        refused = Error{ErrorCode::protocol_violation, "control.join",
                        "the first word of a worker is Join"};
      } else if (auto may = may_join(word.join()); !may.has_value()) {
        refused = may.error();
      } else {
        seat(pipe, word.join());
      }
    } else if (seats_.sends_tensors_on(*pipe)) {
      refused = Error{ErrorCode::protocol_violation, "control.pipe",
                      "a worker says nothing on the pipe for its tensors"};
    }
  }
  if (!refused) return;
  const std::string name = pipe->peer().to_string();
  refuse_stranger(context_.get(), "control.join", {name, name}, refused->detail);
  pipe->cancel(*refused);
}

void ControllerCore::on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) {
  (void)tensors;
  pipe->cancel(Error{ErrorCode::protocol_violation, "control.pipe",
                     "a worker sends no tensors on its worker pipe"});
}

void ControllerCore::on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) {
  (void)reception_.leave(pipe);
  const Lock lock(mutex_);
  store_.forget(pipe);
  const auto rank = seats_.rank_of(*pipe);
  if (!rank) return;
  const SeatState was = seats_.at(*rank).state;
  Error lost{
      ErrorCode::worker_lost, "control.roster",
      name_of(*rank) + (why.code == ErrorCode::end_of_stream ? " has left" : ": " + why.detail)};
  seats_.vacate(*rank);
  const bool part_of_roster = was == SeatState::ready || was == SeatState::forming;
  if (part_of_roster && (runs() || roster_.state == RosterState::forming)) {
    close_roster(std::move(lost));
  } else if (roster_.cause_may_come_until) {
    roster_.why_closed = std::move(lost);
    roster_.cause_may_come_until.reset();
  }
  changed();
}

void ControllerCore::heard(GlobalRank rank, v1::Word word) {
  WorkerSeat& seat = seats_.at(rank);
  switch (word.word_case()) {
    case v1::Word::kHeartbeat:
      return heard(rank, word.roster(), word.heartbeat());
    case v1::Word::kReady:
      if (word.roster() == roster_.id.roster && seat.state == SeatState::forming) {
        seat.ready = word.ready();
        seat.heard.free_blocks = word.ready().free_blocks();
        seat.asked_at.reset();
        seat.state = SeatState::ready;
      }
      break;
    case v1::Word::kStepFailed:
      return failed(rank, word.step_failed());
    case v1::Word::kResendRequest:
      if (word.roster() == roster_.id.roster) resend(rank, word.resend_request());
      break;
    case v1::Word::kResent:
      // As if it had come through its flow.
      if (check(word.resent(), roster_.id).has_value() &&
          word.resent().sender_rank() == rank.value) {
        arrived(std::move(*word.mutable_resent()));
      } else {
        ++stats_.refused;
      }
      break;
    case v1::Word::kNotRetained:
      if (word.roster() == roster_.id.roster && runs()) {
        close_roster({ErrorCode::worker_lost, "control.roster",
                      name_of(rank) + " has outputs no more that were lost on their way"});
      }
      break;
    case v1::Word::kCancelAcknowledged:
      seat.cancelled_id = std::max(seat.cancelled_id, word.cancel_acknowledged().schedule_id());
      break;
    case v1::Word::kInputsApplied:
      if (word.roster() == roster_.id.roster && seat.state == SeatState::ready)
        note_applied(rank, word.inputs_applied().sequence());
      if (!turns_.is_empty()) break;
      return;  // only calls that give out steps wait for it
    case v1::Word::kStoreSet:
      store_.set(seat.pipe, word.store_set().key(), word.store_set().value());
      break;
    case v1::Word::kStoreGet:
      store_.get(seat.pipe, word.store_get().key());
      break;
    default:
      ++stats_.refused;  // of a newer worker, or not for a controller
      break;
  }
  changed();
}

void ControllerCore::heard(GlobalRank rank, std::uint64_t roster, const v1::Heartbeat& heartbeat) {
  WorkerSeat& seat = seats_.at(rank);
  seat.heard_at = Clock::now();
  std::uint64_t progress = heartbeat.collectives() + heartbeat.schedule_id();
  for (const auto& [flow, count] : heartbeat.sent()) progress += count;
  for (const auto& [flow, count] : heartbeat.applied()) progress += count;
  if (progress != std::exchange(seat.progress, progress)) seat.begin_work(seat.heard_at);
  if (!heartbeat.waiting().empty()) seat.busy_since = seat.heard_at;
  seat.heard.schedule_id = heartbeat.schedule_id();
  seat.heard.waiting = heartbeat.waiting();
  seat.heard.waiting_for.clear();
  for (const std::uint32_t awaited : heartbeat.waiting_for())
    seat.heard.waiting_for.push_back({awaited});
  seat.heard.load = heartbeat.load();
  if (heartbeat.ping() != 0) {
    seat.ping = heartbeat.ping();
    seat.asked_at.reset();
  }
  seat.in_roster = roster;
  changed();
  if (roster != roster_.id.roster || seat.state != SeatState::ready) return;
  note_applied(rank, number_of(heartbeat.applied(), v1::FLOW_STEP_INPUTS));
  ask_again(rank, v1::FLOW_STEP_OUTPUTS,
            seat.outputs.missing_after_announced(number_of(heartbeat.sent(), v1::FLOW_STEP_OUTPUTS),
                                                 seat.heard_at));
  ask_again(rank, v1::FLOW_STEP_MICROBATCH_OUTPUTS,
            seat.microbatches.missing_after_announced(
                number_of(heartbeat.sent(), v1::FLOW_STEP_MICROBATCH_OUTPUTS), seat.heard_at));
}

void ControllerCore::note_applied(GlobalRank rank, std::uint64_t sequence) {
  WorkerSeat& seat = seats_.at(rank);
  // More than was sent is a lie, or a fault: it must not free what others need.
  const std::uint64_t applied = std::min(sequence, inputs_.sent());
  seat.taken_inputs = std::max(seat.taken_inputs, applied);
  seat.heard.applied_inputs = std::max(seat.heard.applied_inputs, applied);
  inputs_.applied(seats_.applied_by_all());
}

void ControllerCore::failed(GlobalRank rank, const v1::StepFailed& failure) {
  WorkerSeat& seat = seats_.at(rank);
  if (seat.state == SeatState::empty || seat.state == SeatState::waiting) return;
  seat.public_key = failure.public_key();
  seat.end_tensors();
  const bool first = seat.state == SeatState::ready || seat.state == SeatState::forming;
  seat.state = SeatState::waiting;
  if (first && (runs() || roster_.state == RosterState::forming)) {
    close_roster(
        {ErrorCode::worker_lost, "control.roster",
         name_of(rank) + " failed" +
             (failure.schedule_id() == 0 ? std::string()
                                         : " in step " + std::to_string(failure.schedule_id())) +
             ": " + escaped(failure.error(), kMaxControlTextBytes)});
    roster_.cause_may_come_until = Clock::now() + kCauseComesWithin;
  }
  changed();
}

void ControllerCore::resend(GlobalRank rank, const v1::ResendRequest& request) {
  WorkerSeat& seat = seats_.at(rank);
  if (request.flow() != v1::FLOW_STEP_INPUTS || seat.state != SeatState::ready) {
    ++stats_.refused;
    return;
  }
  stats_.resent += send_again(inputs_, request, word(), *seat.pipe);
}

// --- Flows

void ControllerCore::arrived(v1::StepMessage message) {
  if ((message.flow() != v1::FLOW_STEP_OUTPUTS &&
       message.flow() != v1::FLOW_STEP_MICROBATCH_OUTPUTS) ||
      message.sender_rank() >= seats_.size()) {
    ++stats_.refused;
    return;
  }
  const GlobalRank rank{message.sender_rank()};
  WorkerSeat& seat = seats_.at(rank);
  if (seat.state != SeatState::ready || seat.incarnation != message.incarnation()) {
    ++stats_.refused;
    return;
  }
  const v1::Flow name = message.flow();
  const std::uint64_t sequence = message.sequence();
  WorkerSeat::Flow& flow = seat.flow(name);
  const std::uint64_t size_bytes = message.payload().size();
  switch (flow.take(sequence, std::move(message), size_bytes)) {
    case WorkerSeat::Flow::Arrival::doubled:
      ++stats_.doubled;
      return;
    case WorkerSeat::Flow::Arrival::early:
      ++stats_.parked;
      return ask_again(rank, name, flow.missing_before_parked());
    case WorkerSeat::Flow::Arrival::too_early:
      return;
    case WorkerSeat::Flow::Arrival::in_order:
      return apply(rank, name);
  }
}

void ControllerCore::apply(GlobalRank rank, v1::Flow flow) {
  while (auto message = seats_.at(rank).flow(flow).next()) {
    ++stats_.received;
    const std::uint64_t schedule_id = message->schedule_id();
    const std::uint64_t agreement = message->agreement();
    if (flow == v1::FLOW_STEP_MICROBATCH_OUTPUTS) {
      // The step may be over already: its outputs came by another flow.
      (void)steps_.add_microbatch(schedule_id);
    } else if (!steps_.add({.schedule_id = schedule_id,
                            .rank = rank,
                            .payload = payload_of(*std::move(message)),
                            .agreement = agreement})) {
      ++stats_.refused;
    } else {
      std::uint64_t& taken = seats_.at(rank).taken_inputs;
      taken = std::max(taken, steps_.sequence_of(schedule_id));
    }
  }
  changed();
}

void ControllerCore::ask_again(GlobalRank rank, v1::Flow flow,
                               std::optional<MissingRange> missing) {
  if (missing) seats_.at(rank).pipe->send(request_of(*missing, flow, roster_.id));
}

void ControllerCore::service(Deadline deadline) {
  const std::shared_ptr<ControllerSockets> sockets = sockets_;
  if (reading_ || sockets == nullptr) {
    (void)changed_.wait_until(mutex_, deadline);
    return;
  }
  reading_ = true;
  const RosterId expected = roster_.id;
  mutex_.unlock();
  sockets->wait(wake_->fd(), deadline);
  wake_->take();
  TakenMessages taken = take_some(*sockets, expected);
  mutex_.lock();
  reading_ = false;
  stats_.refused += taken.refused;
  // A roster may have been closed meanwhile.
  if (expected.roster == roster_.id.roster) {
    for (v1::StepMessage& message : taken.messages) arrived(std::move(message));
  }
  changed_.notify_all();
}

void ControllerCore::changed() {
  changed_.notify_all();
  if (reading_) wake_->signal();
}

std::chrono::nanoseconds ControllerCore::beat() {
  const Lock lock(mutex_);
  for (const GlobalRank rank : seats_.in(SeatState::ready)) {
    const WorkerSeat& seat = seats_.at(rank);
    v1::Word beat = word();
    v1::Heartbeat& heartbeat = *beat.mutable_heartbeat();
    (*heartbeat.mutable_sent())[v1::FLOW_STEP_INPUTS] = inputs_.sent();
    (*heartbeat.mutable_applied())[v1::FLOW_STEP_OUTPUTS] = seat.outputs.applied();
    (*heartbeat.mutable_applied())[v1::FLOW_STEP_MICROBATCH_OUTPUTS] = seat.microbatches.applied();
    seat.pipe->send_if_idle(beat);
  }
  beats_fast_ = !steps_.is_idle();
  return beats_fast_ ? options_.step_heartbeat : options_.idle_heartbeat;
}

// --- Steps

Result<void> ControllerCore::broadcast(const StepInputs& inputs, Deadline deadline) {
  StepCall call{.inputs = inputs};
  const Result<void> given = broadcast(call, deadline);
  if (!forked()) end(call);
  return given;
}

Result<void> ControllerCore::broadcast(StepCall& call, Deadline deadline) {
  TENDON_CHECK(check_process("control.broadcast"));
  const StepInputs& inputs = call.inputs;
  if (inputs.payload.size_bytes() > kMaxStepPayloadBytes) {
    return Error{ErrorCode::message_too_large, "control.broadcast",
                 "a payload of " + std::to_string(inputs.payload.size_bytes()) +
                     " bytes; at most " + std::to_string(kMaxStepPayloadBytes) +
                     " are legal: put large inputs in StepInputs::tensors"};
  }
  Lock lock(mutex_);
  if (!call.has_turn) {
    if (roster_.state != RosterState::running) return await_cause("control.broadcast", deadline);
    TENDON_CHECK(turns_.join(inputs.schedule_id));
    call.has_turn = true;
  }
  TENDON_CHECK(await_room(inputs.schedule_id, deadline));
  while (!inputs.tensors.empty()) {
    // Tensors that cannot be sent to one rank are given to none.
    for (const auto& pipe : tensor_pipes()) TENDON_CHECK(pipe->check(inputs.tensors));
    if (call.tensors != nullptr) break;
    const std::shared_ptr<WorkerPipe> any = seats_.at(GlobalRank{0}).pipe;
    lock.unlock();  // a large copy takes long
    TENDON_TRY(kept, any->keep(inputs.tensors));
    call.tensors = std::move(kept);
    lock.lock();
    // There was room before. The roster may be another one.
    TENDON_CHECK(await_room(inputs.schedule_id, deadline));
  }
  v1::StepMessage message = message_of(roster_.id, v1::FLOW_STEP_INPUTS, inputs_.next_sequence());
  message.set_schedule_id(inputs.schedule_id);
  message.set_payload(inputs.payload.data(), inputs.payload.size_bytes());
  message.set_has_tensors(call.tensors != nullptr);
  const auto encoded = encode(message);
  const auto before = standing();
  TENDON_CHECK(sockets_->publish(as_bytes(*encoded)));
  for (const GlobalRank rank : seats_.in(SeatState::ready))
    if (!before.owes(rank)) seats_.at(rank).begin_work(Clock::now());
  inputs_.keep(encoded);
  ++stats_.sent;
  turns_.given(inputs.schedule_id);
  if (!std::exchange(beats_fast_, true)) heart_->wake();
  steps_.begin(inputs.schedule_id, inputs_.sent());
  if (call.tensors == nullptr) return {};
  v1::Word announced = word();
  announced.mutable_step_tensors()->set_schedule_id(inputs.schedule_id);
  const auto pipes = tensor_pipes();
  lock.unlock();
  for (const auto& pipe : pipes) pipe->send(announced, call.tensors);
  return {};
}

std::vector<std::shared_ptr<WorkerPipe>> ControllerCore::tensor_pipes() const {
  std::vector<std::shared_ptr<WorkerPipe>> pipes;
  for (const GlobalRank rank : seats_.in(SeatState::ready)) {
    const WorkerSeat& seat = seats_.at(rank);
    // Others get them from a worker of their host.
    if (!seat.ready.has_relay())
      pipes.push_back(seat.tensors != nullptr ? seat.tensors : seat.pipe);
  }
  return pipes;
}

void ControllerCore::end(const StepCall& call) {
  const Lock lock(mutex_);
  if (!call.has_turn) return;
  turns_.leave(call.inputs.schedule_id);
  changed();
}

Result<void> ControllerCore::await_room(std::uint64_t schedule_id, Deadline deadline) {
  while (roster_.state == RosterState::running) {
    const bool is_first = turns_.first() == schedule_id;
    if (is_first && steps_.has_room() && seats_.behind(must_be_applied()).empty()) break;
    if (deadline.has_passed()) {
      const std::string why = why_no_room();
      return Error{ErrorCode::timeout, "control.broadcast",
                   is_first ? why : behind(schedule_id, turns_.first(), why)};
    }
    if (is_first)
      service(deadline);
    else
      (void)changed_.wait_until(mutex_, deadline);
  }
  if (roster_.state != RosterState::running) return await_cause("control.broadcast", deadline);
  if (steps_.uncollected() >= kMaxUncollectedSteps) {
    return Error{ErrorCode::limit_exceeded, "control.broadcast",
                 std::to_string(kMaxUncollectedSteps) +
                     " steps are complete and were not collected: call collect()"};
  }
  return {};
}

std::uint64_t ControllerCore::must_be_applied() const {
  const std::uint64_t next = inputs_.next_sequence();
  return next > steps_.limit() ? next - steps_.limit() : 0;
}

std::string ControllerCore::why_no_room() const {
  std::string why;
  if (const auto left = steps_.in_flight(); !steps_.has_room()) {
    why = std::to_string(left.size()) + " steps are in flight, the oldest is " +
          std::to_string(left.front()) + ", which waits for " +
          text_of(steps_.missing(left.front()));
  }
  const auto behind = seats_.behind(must_be_applied());
  for (const GlobalRank rank : behind) {
    why += (why.empty()              ? ""
            : rank == behind.front() ? "; "
                                     : ", ") +
           text_of({rank}) + " has taken " + std::to_string(seats_.at(rank).taken_inputs);
  }
  if (!behind.empty()) why += " of the " + std::to_string(inputs_.sent()) + " steps of this roster";
  return why;
}

Result<std::vector<StepOutputs>> ControllerCore::collect(std::uint64_t schedule_id,
                                                         Deadline deadline) {
  const Lock lock(mutex_);
  while (true) {
    if (steps_.is_complete(schedule_id)) return steps_.collect(schedule_id);
    if (!runs()) return await_cause("control.collect", deadline);
    if (!steps_.has(schedule_id)) {
      return Error{ErrorCode::invalid_argument, "control.collect",
                   "step " + std::to_string(schedule_id) +
                       " was not given out in this roster, or was collected before"};
    }
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.collect",
                   "step " + std::to_string(schedule_id) + " waits for " +
                       text_of(steps_.missing(schedule_id))};
    }
    service(deadline);
  }
}

void ControllerCore::give_back(std::vector<StepOutputs> outputs) {
  const Lock lock(mutex_);
  steps_.put_back(std::move(outputs));
}

Result<void> ControllerCore::wait_for_microbatch(std::uint64_t schedule_id, Deadline deadline) {
  const Lock lock(mutex_);
  while (!steps_.has_microbatch(schedule_id)) {
    if (!runs()) return await_cause("control.microbatch", deadline);
    if (!steps_.has(schedule_id)) {
      return Error{ErrorCode::invalid_argument, "control.microbatch",
                   "step " + std::to_string(schedule_id) + " is not in flight"};
    }
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.microbatch",
                   "rank 0 has not passed on step " + std::to_string(schedule_id)};
    }
    service(deadline);
  }
  return {};
}

Result<void> ControllerCore::cancel_step(std::uint64_t schedule_id, Deadline deadline) {
  const Lock lock(mutex_);
  if (!steps_.has(schedule_id)) {
    return Error{ErrorCode::invalid_argument, "control.cancel",
                 "step " + std::to_string(schedule_id) + " is not in flight"};
  }
  v1::Word cancel = word();
  cancel.mutable_cancel()->set_schedule_id(schedule_id);
  seats_.tell_all(cancel);
  while (true) {
    if (!runs()) return await_cause("control.cancel", deadline);
    std::vector<GlobalRank> silent = seats_.in(SeatState::ready);
    std::erase_if(silent, [&](GlobalRank rank) TENDON_REQUIRES(mutex_) {
      return seats_.at(rank).cancelled_id >= schedule_id;
    });
    if (silent.empty()) return {};
    if (deadline.has_passed()) {
      return Error{
          ErrorCode::timeout, "control.cancel",
          text_of(silent) + " did not acknowledge the end of step " + std::to_string(schedule_id)};
    }
    (void)changed_.wait_until(mutex_, deadline);
  }
}

Result<WorkerStatus> ControllerCore::ask(GlobalRank rank, Deadline deadline) {
  const Lock lock(mutex_);
  if (rank.value >= seats_.size()) {
    return Error{
        ErrorCode::invalid_argument, "control.ask",
        "rank " + std::to_string(rank.value) + " of " + std::to_string(seats_.size()) + " workers"};
  }
  const std::shared_ptr<WorkerPipe> pipe = seats_.at(rank).pipe;
  if (pipe == nullptr) {
    return Error{ErrorCode::not_found, "control.ask",
                 "rank " + std::to_string(rank.value) + " has no worker now"};
  }
  const std::uint64_t nonce = ++nonce_;
  v1::Word ping = word();
  ping.mutable_ping()->set_nonce(nonce);
  pipe->send(ping);
  while (seats_.at(rank).pipe == pipe && seats_.at(rank).ping < nonce) {
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.ask", name_of(rank) + " does not reply"};
    }
    (void)changed_.wait_until(mutex_, deadline);
  }
  if (seats_.at(rank).pipe != pipe) {
    return Error{ErrorCode::worker_lost, "control.ask",
                 "rank " + std::to_string(rank.value) + " was lost while it was asked"};
  }
  return standing().statuses()[rank.value];
}

ControllerStatus ControllerCore::status() const {
  const Lock lock(mutex_);
  ControllerStatus status{.state = roster_.state,
                          .roster = roster_.id.roster,
                          .reason = roster_.why_closed.detail,
                          .steps_in_flight = steps_.in_flight()};
  status.workers = standing().statuses();
  return status;
}

FlowStats ControllerCore::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

Result<void> ControllerCore::drain(Deadline deadline) {
  const Lock lock(mutex_);
  if (roster_.state == RosterState::running) roster_.state = RosterState::draining;
  while (!steps_.is_idle()) {
    if (!runs()) return await_cause("control.drain", deadline);
    if (deadline.has_passed()) {
      const auto left = steps_.in_flight();
      return Error{ErrorCode::timeout, "control.drain",
                   std::to_string(left.size()) + " steps are in flight, the oldest is " +
                       std::to_string(left.front()) + ", which waits for " +
                       text_of(steps_.missing(left.front()))};
    }
    service(deadline);
  }
  return {};
}

}  // namespace tendon::v0::detail
