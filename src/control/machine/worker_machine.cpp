// SPDX-License-Identifier: Apache-2.0
#include "control/machine/worker_machine.hpp"

#include <algorithm>
#include <tendon/control/limits.hpp>

#include "core/text.hpp"

namespace tendon::v0::detail {

WorkerMachine::WorkerMachine(const WorkerPlace& place) : place_(place) {
  welcome_.set_idle_heartbeat_ms(1000);  // before the controller has said it
}

Error WorkerMachine::error(std::string_view where) const {
  switch (state_) {
    case WorkerState::closed:
    case WorkerState::stopping:
    case WorkerState::ended:
      return {why_.code, where, why_.detail};
    default:
      return {ErrorCode::roster_closed, where, "this worker is in no roster: call rebuild()"};
  }
}

// --- Rosters

v1::Word WorkerMachine::join(const std::string& public_key) const {
  v1::Word word;
  v1::Join& join = *word.mutable_join();
  const ParallelSizes& sizes = place_.layout.sizes();
  join.set_version(kControlVersion);
  join.set_rank(place_.rank.value);
  join.set_tensor_parallel_size(sizes.tensor);
  join.set_pipeline_parallel_size(sizes.pipeline);
  join.set_kv_parallel_size(sizes.kv);
  join.set_incarnation(place_.incarnation);
  join.set_payload_version(place_.options.schema_hash.over(place_.options.payload_version));
  join.set_public_key(public_key);
  return word;
}

void WorkerMachine::abort_groups(std::string reason) {
  actions_.push_back(
      {Kind::abort_groups, {}, {ErrorCode::group_aborted, "control.roster", std::move(reason)}});
}

void WorkerMachine::close(Error why) {
  state_ = WorkerState::closed;
  why_ = std::move(why);
}

void WorkerMachine::hear(v1::Word word, Time now) {
  const bool mine = word.roster() == id_.roster;
  switch (word.word_case()) {
    case v1::Word::kWelcome:
      if (state_ != WorkerState::joining) break;
      id_.run = word.run_id();
      welcome_ = word.welcome();
      state_ = WorkerState::waiting;
      break;
    case v1::Word::kRebuild:
      if (word.roster() > id_.roster) rebuild_ = std::move(word);
      break;
    case v1::Word::kRosterClosed:
      heard_closed(word.roster(), {ErrorCode::roster_closed, "control.roster",
                                   escaped(word.roster_closed().reason(), kMaxControlTextBytes)});
      break;
    case v1::Word::kHeartbeat:
      if (mine && moves_steps()) heard(word.heartbeat(), now);
      break;
    case v1::Word::kResendRequest:
      if (mine && moves_steps()) resend(std::move(word));
      break;
    case v1::Word::kResent:
      if (moves_steps() && check(word.resent(), id_).has_value())
        arrived(std::move(*word.mutable_resent()));
      else
        ++stats_.refused;
      break;
    case v1::Word::kNotRetained:
      if (!mine || state_ != WorkerState::running) break;
      close({ErrorCode::roster_closed, "control.roster",
             "StepInputs were lost that the controller no longer has"});
      abort_groups(why_.detail);
      break;
    case v1::Word::kStepTensors:
      flows_.announced = mine ? word.step_tensors().schedule_id() : 0;
      break;
    case v1::Word::kCancel: {
      if (cancelled_ != nullptr && at_work_ == word.cancel().schedule_id())
        cancelled_->store(true, std::memory_order_relaxed);
      v1::Word reply = word_of(id_);
      reply.mutable_cancel_acknowledged()->set_schedule_id(word.cancel().schedule_id());
      actions_.push_back({Kind::say, std::move(reply)});
      break;
    }
    case v1::Word::kPing:
      actions_.push_back({Kind::reply, std::move(word)});
      break;
    case v1::Word::kStop:
      if (state_ == WorkerState::ended) break;
      // A worker that is making groups would wait for others that have ended.
      if (state_ == WorkerState::entering) abort_groups("the controller stopped");
      state_ = moves_steps() ? WorkerState::stopping : WorkerState::ended;
      last_inputs_ = word.stop().last_inputs();
      why_ = {ErrorCode::end_of_stream, "control.stop",
              "the controller stopped: " + escaped(word.stop().reason(), kMaxControlTextBytes)};
      break;
    default:
      ++stats_.refused;
      break;
  }
}

void WorkerMachine::heard_closed(std::uint64_t roster, Error why) {
  if (roster == id_.roster && (state_ == WorkerState::running || state_ == WorkerState::entering)) {
    close(std::move(why));
    abort_groups(why_.detail);
  } else if (may_enter() && rebuild_->roster() == roster) {
    // It ended before this worker's thread began to enter it: nobody would end it for it then.
    rebuild_.reset();
    id_.roster = roster;
    actions_.push_back({Kind::fail, {}, std::move(why)});
  }
}

void WorkerMachine::ended(const Error& why) {
  if (state_ == WorkerState::stopping || state_ == WorkerState::ended) return;
  const std::string reason = "the controller is gone: " + why.detail;
  // A refusal is the controller's own word.
  const bool lost = why.code == ErrorCode::peer_lost || why.code == ErrorCode::end_of_stream;
  why_ = {lost ? ErrorCode::peer_lost : why.code, "control.controller", lost ? reason : why.detail};
  state_ = WorkerState::ended;
  abort_groups(reason);
}

void WorkerMachine::leave(std::string_view reason) {
  if (state_ != WorkerState::ended) {
    state_ = WorkerState::ended;
    why_ = {ErrorCode::end_of_stream, "control.leave", std::string(reason)};
  }
  abort_groups("this worker leaves: " + std::string(reason));
}

StepEndpoints WorkerMachine::enter() {
  const v1::Word word = *std::exchange(rebuild_, std::nullopt);
  id_.roster = word.roster();
  state_ = WorkerState::entering;
  flows_ = Flows();
  const v1::Rebuild& rebuild = word.rebuild();
  return {.inputs = rebuild.inputs_endpoint(),
          .outputs = rebuild.outputs_endpoint(),
          .microbatches = rebuild.microbatch_endpoint(),
          .server_key = rebuild.server_key()};
}

void WorkerMachine::ready(v1::Ready ready) {
  ready.set_rank(place_.rank.value);
  ready.set_nonce(flows_.probe.value_or(0));
  ready.set_free_blocks(place_.options.free_blocks);
  v1::Word word = word_of(id_);
  *word.mutable_ready() = std::move(ready);
  actions_.push_back({Kind::say, std::move(word)});
  state_ = WorkerState::running;
}

void WorkerMachine::failed(const Error& cause, const std::string& public_key,
                           std::uint64_t last_complete_sequence) {
  v1::Word word = word_of(id_);
  v1::StepFailed& failed = *word.mutable_step_failed();
  failed.set_schedule_id(at_work_);
  failed.set_code(static_cast<std::uint32_t>(cause.code));
  failed.set_error(escaped(cause.detail, kMaxControlTextBytes));
  failed.set_last_complete_sequence(last_complete_sequence);
  failed.set_public_key(public_key);
  step_over(at_work_);
  flows_ = Flows();
  state_ = WorkerState::waiting;
  actions_.push_back({Kind::say, std::move(word)});
}

// --- Steps

void WorkerMachine::take(std::uint64_t roster, TakenMessages taken) {
  stats_.refused += taken.refused;
  if (roster != id_.roster) return;
  for (v1::StepMessage& message : taken.messages) arrived(std::move(message));
}

void WorkerMachine::arrived(v1::StepMessage message) {
  if (message.flow() == v1::FLOW_PROBE)
    flows_.probe = message.nonce();
  else if (message.flow() == v1::FLOW_STEP_INPUTS)
    ask_again(put_into(flows_.inputs, std::move(message), stats_));
  else
    ++stats_.refused;
}

void WorkerMachine::ask_again(const std::optional<MissingRange>& missing) {
  if (missing) actions_.push_back({Kind::say, request_of(*missing, v1::FLOW_STEP_INPUTS, id_)});
}

void WorkerMachine::keep_tensors(std::uint64_t roster, std::uint64_t schedule_id,
                                 TensorDict tensors) {
  if (id_.roster == roster && flows_.tensors.size() < kMaxParkedMessages)
    flows_.tensors[schedule_id] = std::move(tensors);
}

std::optional<std::uint64_t> WorkerMachine::waits_for_tensors_of() const {
  const v1::StepMessage* next = flows_.inputs.peek();
  if (next == nullptr || !next->has_tensors() || flows_.tensors.contains(next->schedule_id()))
    return std::nullopt;
  return next->schedule_id();
}

std::optional<v0::Step> WorkerMachine::next_step() {
  if (flows_.returned) return std::exchange(flows_.returned, std::nullopt);
  if (waits_for_tensors_of()) return std::nullopt;
  auto next = flows_.inputs.next();
  if (!next) return std::nullopt;
  at_work_ = next->schedule_id();
  cancelled_ = std::make_shared<std::atomic<bool>>(false);
  v0::Step step{.inputs = {.schedule_id = at_work_}, .cancel_flag = cancelled_};
  if (next->has_tensors())
    step.inputs.tensors = std::move(flows_.tensors.extract(at_work_).mapped());
  step.inputs.payload = payload_of(*std::move(next));
  ++stats_.received;
  if (!place_.sends_outputs()) {
    // The controller waits for all, and nothing else tells it before the next heartbeat.
    v1::Word applied = word_of(id_);
    applied.mutable_inputs_applied()->set_sequence(flows_.inputs.applied());
    actions_.push_back({Kind::say, std::move(applied)});
  }
  return step;
}

bool WorkerMachine::is_done() const {
  return state_ == WorkerState::stopping && flows_.inputs.applied() >= last_inputs_;
}

void WorkerMachine::give_back(v0::Step step) {
  if (moves_steps() && at_work_ == step.inputs.schedule_id) flows_.returned = std::move(step);
}

void WorkerMachine::step_over(std::uint64_t schedule_id) {
  if (at_work_ != schedule_id) return;
  at_work_ = 0;
  cancelled_ = nullptr;
}

v1::StepMessage WorkerMachine::next_message(v1::Flow flow, v1::StepMessage message) const {
  message.MergeFrom(message_of(id_, flow, sender_of(flow).next_sequence()));
  message.set_incarnation(place_.incarnation);
  message.set_sender_rank(place_.rank.value);
  return message;
}

void WorkerMachine::sent(v1::Flow flow, FlowSender::Kept message) {
  (flow == v1::FLOW_STEP_OUTPUTS ? flows_.outputs : flows_.microbatches).keep(std::move(message));
  ++stats_.sent;
}

void WorkerMachine::resend(v1::Word request) {
  const v1::Flow flow = request.resend_request().flow();
  if (flow != v1::FLOW_STEP_OUTPUTS && flow != v1::FLOW_STEP_MICROBATCH_OUTPUTS) {
    ++stats_.refused;
    return;
  }
  flows_.broken.insert(v1::FLOW_STEP_OUTPUTS);
  actions_.push_back({Kind::send_again, std::move(request)});
}

// --- Heartbeats

void WorkerMachine::heard(const v1::Heartbeat& heartbeat, Time now) {
  const auto applied = [&](v1::Flow flow, FlowSender& sender) {
    sender.applied(std::min(number_of(heartbeat.applied(), flow), sender.sent()));
  };
  applied(v1::FLOW_STEP_OUTPUTS, flows_.outputs);
  applied(v1::FLOW_STEP_MICROBATCH_OUTPUTS, flows_.microbatches);
  const auto missing =
      flows_.inputs.missing_after_announced(number_of(heartbeat.sent(), v1::FLOW_STEP_INPUTS), now);
  if (!missing) return;
  // A computing program has not looked into its sockets: the missing messages may lie there. They
  // are asked for all the same, so that it need not wait; a double is dropped.
  if (is_at_work())
    flows_.broken.erase(v1::FLOW_STEP_INPUTS);
  else
    flows_.broken.insert(v1::FLOW_STEP_INPUTS);
  ask_again(missing);
}

std::chrono::milliseconds WorkerMachine::beat_interval() const {
  return std::chrono::milliseconds(
      std::max(is_at_work() ? welcome_.step_heartbeat_ms() : welcome_.idle_heartbeat_ms(), 1U));
}

v1::Word WorkerMachine::heartbeat(std::uint64_t ping, const GroupsAtWork& groups,
                                  double load) const {
  v1::Word word = word_of(id_);
  v1::Heartbeat& beat = *word.mutable_heartbeat();
  for (const v1::Flow flow : {v1::FLOW_STEP_OUTPUTS, v1::FLOW_STEP_MICROBATCH_OUTPUTS})
    (*beat.mutable_sent())[flow] = sender_of(flow).sent();
  (*beat.mutable_applied())[v1::FLOW_STEP_INPUTS] = flows_.inputs.applied();
  beat.set_schedule_id(at_work_);
  beat.set_waiting(escaped(groups.waiting, kMaxControlTextBytes));
  for (const GlobalRank rank : groups.waiting_for) beat.add_waiting_for(rank.value);
  beat.set_load(load);
  beat.set_ping(ping);
  beat.set_collectives(groups.collectives);
  return word;
}

}  // namespace tendon::v0::detail
