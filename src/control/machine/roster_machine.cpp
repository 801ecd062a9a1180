// SPDX-License-Identifier: Apache-2.0
#include "control/machine/roster_machine.hpp"

#include <algorithm>
#include <tendon/control/limits.hpp>
#include <tendon/observe/log.hpp>

#include "control/machine/standing.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {
namespace {

// From a collective that fails because a member died to the end of that member's worker pipe.
constexpr std::chrono::milliseconds kCauseComesWithin{100};
// The interval at which awaited workers are asked whether they live.
constexpr std::chrono::milliseconds kAskInterval{1000};

Error refused(std::string why) {
  return {ErrorCode::invalid_argument, "control.join", std::move(why)};
}

std::string layout_text(std::uint32_t tensor, std::uint32_t pipeline, std::uint32_t kv) {
  return "tensor " + std::to_string(tensor) + ", pipeline " + std::to_string(pipeline) + ", kv " +
         std::to_string(kv);
}

/// Checks that this controller has workers of this kind.
Result<void> check_kind(const v1::Join& join, const ParallelSizes& sizes,
                        std::uint64_t payload_version) {
  if (join.version() != kControlVersion) {
    return Error{ErrorCode::version_mismatch, "control.join",
                 "the worker speaks version " + std::to_string(join.version()) +
                     " of the control protocol, the controller " + std::to_string(kControlVersion)};
  }
  if (join.tensor_parallel_size() != sizes.tensor ||
      join.pipeline_parallel_size() != sizes.pipeline || join.kv_parallel_size() != sizes.kv) {
    return refused("the worker's layout is " +
                   layout_text(join.tensor_parallel_size(), join.pipeline_parallel_size(),
                               join.kv_parallel_size()) +
                   "; the controller's is " + layout_text(sizes.tensor, sizes.pipeline, sizes.kv));
  }
  if (join.payload_version() != payload_version) {
    return refused("the worker's payloads have the version " +
                   std::to_string(join.payload_version()) + ", the controller's " +
                   std::to_string(payload_version));
  }
  return {};
}

/// Checks that all workers are in one epoch of the world group, with all others.
Result<void> compare_ready(const WorkerSeats& seats) {
  const v1::Ready& first = seats.at({0}).ready;
  for (std::uint32_t rank = 0; rank < seats.size(); ++rank) {
    const v1::Ready& ready = seats.at({rank}).ready;
    if (ready.group_epoch() == first.group_epoch() && ready.members() == seats.size()) continue;
    return Error{ErrorCode::mismatch, "control.form",
                 name_of(seats.at({rank})) + " is in epoch " + std::to_string(ready.group_epoch()) +
                     " of the world group with " + std::to_string(ready.members()) + " members, " +
                     name_of(seats.at({0})) + " in epoch " + std::to_string(first.group_epoch()) +
                     " with " + std::to_string(first.members())};
  }
  return {};
}

/// The reason for replacing this worker now; empty: none. `since`: the roster was closed, or is
/// formed.
std::string why_hung(const WorkerSeat& seat, std::uint64_t roster, RosterMachine::Time since,
                     RosterMachine::Time now, std::chrono::milliseconds hang_timeout) {
  const std::string within =
      " within " + std::to_string(hang_timeout.count()) + " ms (hang_timeout)";
  if (seat.asked_at && now - *seat.asked_at >= hang_timeout)
    return " did not reply" + within + " while a roster was formed";
  if (now - since < hang_timeout) return {};
  if (seat.state == SeatState::failing) {
    return " did not say that it is done with roster " + std::to_string(roster) + within +
           " of its end";
  }
  // It lives and says so, but its program is not in rebuild().
  if (seat.state == SeatState::forming && seat.in_roster < roster &&
      seat.heard_at - since >= hang_timeout)
    return " did not enter roster " + std::to_string(roster) + within;
  return {};
}

}  // namespace

RosterMachine::RosterMachine(const ParallelLayout& layout, ControllerOptions options,
                             std::string run_id)
    : layout_(layout),
      options_(std::move(options)),
      id_{.run = std::move(run_id), .roster = 0},
      seats_(layout.world_size()),
      steps_(layout) {}

ControllerStatus RosterMachine::status(Time now) const {
  return {
      .state = state_,
      .roster = id_.roster,
      .reason = why_closed_.detail,
      .steps_in_flight = steps_.in_flight(),
      .workers = Standing(seats_, steps_, inputs_.sent(), options_.idle_heartbeat, now).statuses()};
}

Error RosterMachine::error(std::string_view where) const {
  switch (state_) {
    case RosterState::stopped:
      return {ErrorCode::roster_closed, where, "the controller has stopped"};
    case RosterState::draining:
      return {ErrorCode::roster_closed, where, "the controller drains: it accepts no further step"};
    case RosterState::closed:
    case RosterState::failed:
      return {why_closed_.code, where, why_closed_.detail};
    default:
      return {ErrorCode::roster_closed, where,
              "no roster runs: call wait_for_workers() or rebuild()"};
  }
}

void RosterMachine::tell_all(const v1::Word& word) {
  for (const GlobalRank rank : seats_.taken()) actions_.push_back({Kind::say, rank, word});
}

// --- Workers

Result<v1::Word> RosterMachine::join(const v1::Join& join, const PeerIdentity& peer, Time now) {
  if (state_ == RosterState::failed) return error("control.join");
  TENDON_CHECK(
      check_kind(join, layout_.sizes(), options_.schema_hash.over(options_.payload_version)));
  if (join.rank() >= seats_.size()) {
    return refused("rank " + std::to_string(join.rank()) + " of " + std::to_string(seats_.size()) +
                   " workers");
  }
  WorkerSeat& seat = seats_.at({join.rank()});
  if (seat.state != SeatState::empty) return refused(name_of(seat) + " is there already");
  seat = WorkerSeat{};
  seat.state = SeatState::waiting;
  seat.incarnation = join.incarnation();
  seat.public_key = join.public_key();
  seat.heard.rank = {join.rank()};
  seat.heard.identity = peer;
  seat.heard_at = now;
  seat.begin_work(now);
  v1::Word word = word_of(id_);
  v1::Welcome& welcome = *word.mutable_welcome();
  welcome.set_idle_heartbeat_ms(static_cast<std::uint32_t>(options_.idle_heartbeat.count()));
  welcome.set_step_heartbeat_ms(static_cast<std::uint32_t>(options_.step_heartbeat.count()));
  return word;
}

Result<v1::Word> RosterMachine::join_tensors(const v1::Word& word, const PeerIdentity& peer) {
  const std::uint32_t rank = word.relay_join().rank();
  WorkerSeat* const seat = rank < seats_.size() ? &seats_.at({rank}) : nullptr;
  if (!is_of(word, id_) || seat == nullptr || seat->state != SeatState::forming ||
      seat->has_tensor_pipe || seat->heard.identity.context != peer.context) {
    return Error{ErrorCode::permission_denied, "control.join",
                 "that is no worker which enters the roster, or it has opened such a pipe before"};
  }
  seat->has_tensor_pipe = true;
  v1::Word welcome = word_of(id_);
  welcome.mutable_relay_welcome();
  return welcome;
}

void RosterMachine::lost(GlobalRank rank, const Error& why, Time now) {
  const SeatState was = seats_.at(rank).state;
  Error lost{ErrorCode::worker_lost, "control.roster",
             name_of(seats_.at(rank)) +
                 (why.code == ErrorCode::end_of_stream ? " has left" : ": " + why.detail)};
  seats_.vacate(rank);
  const bool part_of_roster = was == SeatState::ready || was == SeatState::forming;
  if (part_of_roster && (runs(state_) || state_ == RosterState::forming)) {
    close(std::move(lost), now);
  } else if (cause_may_come_until_) {
    why_closed_ = std::move(lost);
    cause_may_come_until_.reset();
  }
}

void RosterMachine::hear(GlobalRank rank, v1::Word word, Time now) {
  WorkerSeat& seat = seats_.at(rank);
  const bool mine = word.roster() == id_.roster;
  switch (word.word_case()) {
    case v1::Word::kHeartbeat:
      return heard(rank, word.roster(), word.heartbeat(), now);
    case v1::Word::kReady:
      if (mine && seat.state == SeatState::forming) {
        seat.ready = word.ready();
        seat.heard.free_blocks = word.ready().free_blocks();
        seat.asked_at.reset();
        seat.state = SeatState::ready;
      }
      break;
    case v1::Word::kStepFailed:
      return failed(rank, word.step_failed(), now);
    case v1::Word::kResendRequest:
      if (!mine) break;
      if (word.resend_request().flow() == v1::FLOW_STEP_INPUTS && seat.state == SeatState::ready)
        actions_.push_back({Kind::send_again, rank, std::move(word)});
      else
        ++stats_.refused;
      break;
    case v1::Word::kResent:
      // As if it had arrived through its flow.
      if (check(word.resent(), id_).has_value() && word.resent().sender_rank() == rank.value)
        arrived(std::move(*word.mutable_resent()));
      else
        ++stats_.refused;
      break;
    case v1::Word::kNotRetained:
      if (mine && runs(state_)) {
        close({ErrorCode::worker_lost, "control.roster",
               name_of(seat) + " has outputs no more that were lost on their way"},
              now);
      }
      break;
    case v1::Word::kCancelAcknowledged:
      seat.cancelled_id = std::max(seat.cancelled_id, word.cancel_acknowledged().schedule_id());
      break;
    case v1::Word::kInputsApplied:
      if (mine && seat.state == SeatState::ready)
        note_applied(rank, word.inputs_applied().sequence());
      break;
    default:
      ++stats_.refused;  // of a newer worker, or not for a controller
      break;
  }
}

void RosterMachine::heard(GlobalRank rank, std::uint64_t roster, const v1::Heartbeat& heartbeat,
                          Time now) {
  WorkerSeat& seat = seats_.at(rank);
  seat.heard_at = now;
  std::uint64_t progress = heartbeat.collectives() + heartbeat.schedule_id();
  for (const auto& [flow, count] : heartbeat.sent()) progress += count;
  for (const auto& [flow, count] : heartbeat.applied()) progress += count;
  if (progress != std::exchange(seat.progress, progress)) seat.begin_work(now);
  if (!heartbeat.waiting().empty()) seat.busy_since = now;
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
  if (roster != id_.roster || seat.state != SeatState::ready) return;
  note_applied(rank, number_of(heartbeat.applied(), v1::FLOW_STEP_INPUTS));
  for (const v1::Flow flow : {v1::FLOW_STEP_OUTPUTS, v1::FLOW_STEP_MICROBATCH_OUTPUTS}) {
    const std::uint64_t sent = number_of(heartbeat.sent(), flow);
    ask_again(rank, flow, seat.flow(flow).missing_after_announced(sent, now));
  }
}

void RosterMachine::note_applied(GlobalRank rank, std::uint64_t sequence) {
  WorkerSeat& seat = seats_.at(rank);
  // A number beyond the sent ones is a lie, or a fault: it must not free messages that others need.
  const std::uint64_t applied = std::min(sequence, inputs_.sent());
  seat.taken_inputs = std::max(seat.taken_inputs, applied);
  seat.heard.applied_inputs = std::max(seat.heard.applied_inputs, applied);
  inputs_.applied(seats_.applied_by_all());
}

void RosterMachine::failed(GlobalRank rank, const v1::StepFailed& failure, Time now) {
  WorkerSeat& seat = seats_.at(rank);
  if (seat.state == SeatState::empty || seat.state == SeatState::waiting) return;
  seat.public_key = failure.public_key();
  if (std::exchange(seat.has_tensor_pipe, false)) actions_.push_back({Kind::end_tensors, rank});
  const bool first = seat.state == SeatState::ready || seat.state == SeatState::forming;
  seat.state = SeatState::waiting;
  if (!first || !(runs(state_) || state_ == RosterState::forming)) return;
  const std::string step =
      failure.schedule_id() == 0 ? "" : " in step " + std::to_string(failure.schedule_id());
  close({ErrorCode::worker_lost, "control.roster",
         name_of(seat) + " failed" + step + ": " + escaped(failure.error(), kMaxControlTextBytes)},
        now);
  cause_may_come_until_ = now + kCauseComesWithin;
}

void RosterMachine::ask_again(GlobalRank rank, v1::Flow flow,
                              const std::optional<MissingRange>& missing) {
  if (missing) actions_.push_back({Kind::say, rank, request_of(*missing, flow, id_)});
}

void RosterMachine::take(std::uint64_t roster, TakenMessages taken) {
  stats_.refused += taken.refused;
  // A roster may have been closed meanwhile.
  if (roster != id_.roster) return;
  for (v1::StepMessage& message : taken.messages) arrived(std::move(message));
}

void RosterMachine::arrived(v1::StepMessage message) {
  const v1::Flow name = message.flow();
  const GlobalRank rank{message.sender_rank()};
  if ((name != v1::FLOW_STEP_OUTPUTS && name != v1::FLOW_STEP_MICROBATCH_OUTPUTS) ||
      rank.value >= seats_.size() || seats_.at(rank).state != SeatState::ready ||
      seats_.at(rank).incarnation != message.incarnation()) {
    ++stats_.refused;
    return;
  }
  WorkerSeat& seat = seats_.at(rank);
  StepFlow& flow = seat.flow(name);
  ask_again(rank, name, put_into(flow, std::move(message), stats_));
  while (auto next = flow.next()) {
    ++stats_.received;
    const std::uint64_t schedule_id = next->schedule_id();
    const std::uint64_t agreement = next->agreement();
    if (name == v1::FLOW_STEP_MICROBATCH_OUTPUTS) {
      // The step may have ended already: its outputs arrived by another flow.
      (void)steps_.add_microbatch(schedule_id);
    } else if (!steps_.add({.schedule_id = schedule_id,
                            .rank = rank,
                            .payload = payload_of(*std::move(next)),
                            .agreement = agreement})) {
      ++stats_.refused;
    } else {
      seat.taken_inputs = std::max(seat.taken_inputs, steps_.sequence_of(schedule_id));
    }
  }
}

// --- Rosters

void RosterMachine::open(const StepEndpoints& endpoints, Time now) {
  ++id_.roster;
  inputs_ = FlowSender();
  state_ = RosterState::forming;
  since_ = now;
  why_closed_ = {};
  v1::Word word = word_of(id_);
  v1::Rebuild& rebuild = *word.mutable_rebuild();
  rebuild.set_inputs_endpoint(endpoints.inputs);
  rebuild.set_outputs_endpoint(endpoints.outputs);
  rebuild.set_microbatch_endpoint(endpoints.microbatches);
  rebuild.set_server_key(endpoints.server_key);
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    seats_.at({rank}).state = SeatState::forming;
    seats_.at({rank}).forget_steps(now);
  }
  tell_all(word);
}

v1::StepMessage RosterMachine::probe() {
  v1::StepMessage probe = message_of(id_, v1::FLOW_PROBE);
  probe.set_nonce(++nonce_);
  return probe;
}

Result<void> RosterMachine::run(Time now) {
  Result<void> same = compare_ready(seats_);
  if (same.has_value())
    state_ = RosterState::running;
  else
    close(same.error(), now);
  return same;
}

void RosterMachine::look_for_hung(Time now) {
  const bool asks = now - asked_at_ >= std::min(kAskInterval, options_.hang_timeout);
  if (asks) asked_at_ = now;
  for (const GlobalRank rank : seats_.taken()) {
    WorkerSeat& seat = seats_.at(rank);
    if (seat.state == SeatState::ready) continue;
    const std::string why = why_hung(seat, id_.roster, since_, now, options_.hang_timeout);
    if (why.empty()) {
      if (!asks || seat.asked_at) continue;
      (void)ping(rank);
      seat.asked_at = now;
      continue;
    }
    const Error lost{ErrorCode::worker_lost, "control.roster", name_of(seat) + why};
    log(LogLevel::warn, "control.roster", lost.detail + ": another worker takes its place");
    seats_.vacate(rank);
    if (state_ == RosterState::forming) close(lost, now);
    actions_.push_back({Kind::give_up, rank, {}, lost});
  }
}

void RosterMachine::close(Error why, Time now) {
  state_ = RosterState::closed;
  since_ = now;
  stats_.void_outputs += steps_.clear();
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    WorkerSeat& seat = seats_.at({rank});
    seat.asked_at.reset();
    if (seat.state == SeatState::ready || seat.state == SeatState::forming)
      seat.state = SeatState::failing;
  }
  v1::Word closed = word_of(id_);
  closed.mutable_roster_closed()->set_code(static_cast<std::uint32_t>(why.code));
  closed.mutable_roster_closed()->set_reason(escaped(why.detail, kMaxControlTextBytes));
  tell_all(closed);
  why_closed_ = std::move(why);
  cause_may_come_until_.reset();
}

void RosterMachine::fail(const Error& why) {
  state_ = RosterState::failed;
  why_closed_ = why;
  // No worker may wait until its own deadline for a roster that nobody forms.
  for (const GlobalRank rank : seats_.taken()) {
    seats_.vacate(rank);
    actions_.push_back({Kind::give_up, rank, {}, why});
  }
}

void RosterMachine::drain() {
  if (state_ == RosterState::running) state_ = RosterState::draining;
}

void RosterMachine::stop(std::string_view reason, std::uint64_t last_inputs) {
  state_ = RosterState::stopped;
  v1::Word stop = word_of(id_);
  stop.mutable_stop()->set_reason(escaped(reason, kMaxControlTextBytes));
  stop.mutable_stop()->set_last_inputs(last_inputs);
  tell_all(stop);
}

// --- Steps

v1::StepMessage RosterMachine::next_inputs(const StepInputs& inputs) const {
  v1::StepMessage message = message_of(id_, v1::FLOW_STEP_INPUTS, inputs_.next_sequence());
  message.set_schedule_id(inputs.schedule_id);
  message.set_payload(inputs.payload.data(), inputs.payload.size_bytes());
  message.set_has_tensors(!inputs.tensors.empty());
  return message;
}

void RosterMachine::given(std::uint64_t schedule_id, FlowSender::Kept message, Time now) {
  const Standing before(seats_, steps_, inputs_.sent(), options_.idle_heartbeat, now);
  for (const GlobalRank rank : seats_.in(SeatState::ready))
    if (!before.owes(rank)) seats_.at(rank).begin_work(now);
  inputs_.keep(std::move(message));
  ++stats_.sent;
  steps_.begin(schedule_id, inputs_.sent());
}

std::string RosterMachine::why_no_room() const {
  std::string why = steps_.has_room() ? "" : steps_.why_busy();
  const std::uint64_t next = inputs_.next_sequence();
  // The ranks that have not yet taken enough inputs for further ones to be sent.
  const auto behind = seats_.behind(next > steps_.limit() ? next - steps_.limit() : 0);
  for (const GlobalRank rank : behind) {
    why += (why.empty()              ? ""
            : rank == behind.front() ? "; "
                                     : ", ") +
           text_of({rank}) + " has taken " + std::to_string(seats_.at(rank).taken_inputs);
  }
  if (!behind.empty()) why += " of the " + std::to_string(inputs_.sent()) + " steps of this roster";
  return why;
}

std::vector<GlobalRank> RosterMachine::tensor_ranks() const {
  std::vector<GlobalRank> ranks = seats_.in(SeatState::ready);
  std::erase_if(ranks, [&](GlobalRank rank) { return seats_.at(rank).ready.has_relay(); });
  return ranks;
}

void RosterMachine::cancel(std::uint64_t schedule_id) {
  v1::Word cancel = word_of(id_);
  cancel.mutable_cancel()->set_schedule_id(schedule_id);
  tell_all(cancel);
}

std::uint64_t RosterMachine::ping(GlobalRank rank) {
  v1::Word ping = word_of(id_);
  ping.mutable_ping()->set_nonce(++nonce_);
  actions_.push_back({Kind::say, rank, std::move(ping)});
  return nonce_;
}

bool RosterMachine::beat() {
  for (const GlobalRank rank : seats_.in(SeatState::ready)) {
    const WorkerSeat& seat = seats_.at(rank);
    v1::Word beat = word_of(id_);
    v1::Heartbeat& heartbeat = *beat.mutable_heartbeat();
    (*heartbeat.mutable_sent())[v1::FLOW_STEP_INPUTS] = inputs_.sent();
    (*heartbeat.mutable_applied())[v1::FLOW_STEP_OUTPUTS] = seat.outputs.applied();
    (*heartbeat.mutable_applied())[v1::FLOW_STEP_MICROBATCH_OUTPUTS] = seat.microbatches.applied();
    actions_.push_back({Kind::say_if_idle, rank, std::move(beat)});
  }
  return !steps_.is_idle();
}

}  // namespace tendon::v0::detail
