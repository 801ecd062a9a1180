// SPDX-License-Identifier: Apache-2.0
#include "control/worker_core.hpp"

#include <algorithm>
#include <utility>

#include "control/flows/resending.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {
namespace {

// In a heartbeat.
constexpr std::size_t kMaxAwaitedSaid = 64;

// The workers of the controller's host read the same memory. No worker may write its tensors, so
// that a program does not depend on where its worker runs.
TensorDict to_read(TensorDict tensors) {
  const PackedView* const packed = tensors.packed();
  if (packed == nullptr) return tensors;  // a dict of values only
  const Storage& own = packed->storage;
  Storage storage(own.owner(), own.data(), own.size_bytes(), Access::read_only, own.origin());
  auto read =
      TensorDict::from_packed(packed->schema, packed->layout, std::move(storage), packed->values);
  return read ? *std::move(read) : std::move(tensors);
}

}  // namespace

/// One thread at a time moves steps.
class WorkerCore::Turn {
 public:
  explicit Turn(WorkerCore& core) : core_(core) {
    const Lock lock(core.mutex_);
    holds_ = !std::exchange(core.threads_.has_turn, true);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!holds_) return;
    const Lock lock(core_.mutex_);
    core_.threads_.has_turn = false;
  }
  [[nodiscard]] Result<void> check(std::string_view where) const {
    if (holds_) return {};
    return Error{ErrorCode::busy, where, "another thread moves the steps of this worker"};
  }

 private:
  WorkerCore& core_;
  bool holds_ = false;
};

WorkerCore::~WorkerCore() = default;

Result<void> WorkerCore::join(Context& context, Pipe pipe, Deadline deadline) {
  const Turn turn(*this);
  meeting_.context = ContextCore::of(context);
  pipe_ = std::make_shared<WorkerPipe>(std::move(pipe), weak_from_this());
  meeting_.store = std::make_shared<PipeStore>(pipe_);
  TENDON_TRY(heart, Heart::start([this] { return beat(); }));
  heart_ = std::move(heart);
  pipe_->start();
  v1::Word word;
  v1::Join& join = *word.mutable_join();
  const ParallelSizes& sizes = place_.layout.sizes();
  join.set_version(kControlVersion);
  join.set_rank(place_.rank.value);
  join.set_tensor_parallel_size(sizes.tensor);
  join.set_pipeline_parallel_size(sizes.pipeline);
  join.set_kv_parallel_size(sizes.kv);
  join.set_incarnation(place_.incarnation);
  join.set_schema_hash(place_.options.schema_hash);
  TENDON_TRY(keys, network_->make_keys());
  keys_ = std::move(keys);
  join.set_public_key(keys_.public_key);
  pipe_->send(word);
  return enter(deadline);
}

std::uint64_t WorkerCore::roster() const {
  const Lock lock(mutex_);
  return id_.roster;
}

WorkerGroups WorkerCore::groups() const {
  const Lock lock(mutex_);
  return groups_;
}

FlowStats WorkerCore::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

// --- Steps

Result<Step> WorkerCore::next_step(Deadline deadline) {
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.next_step"));
  const Lock lock(mutex_);
  while (true) {
    if (!moves_steps()) {
      return state_error("control.next_step");
    }
    if (auto returned = std::exchange(flows_.returned, std::nullopt)) return *std::move(returned);
    if (auto step = take_step()) return *std::move(step);
    if (state_ == WorkerState::stopping && flows_.inputs.applied() >= told_.last_inputs) {
      return state_error("control.next_step");
    }
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.next_step", "no step came"};
    }
    service(deadline);
  }
}

// In another roster it is void.
void WorkerCore::give_back(Step step) {
  const Lock lock(mutex_);
  if (moves_steps() && at_work_.schedule_id == step.inputs.schedule_id)
    flows_.returned = std::move(step);
}

std::optional<Step> WorkerCore::take_step() {
  const v1::StepMessage* next = flows_.inputs.peek();
  if (next == nullptr) return std::nullopt;
  Step step;
  step.inputs.schedule_id = next->schedule_id();
  if (next->has_tensors()) {
    const auto tensors = flows_.tensors.find(step.inputs.schedule_id);
    if (tensors == flows_.tensors.end()) {
      // Still on their way, unless the pipe that they would come on is gone.
      const auto why = flows_.relay == nullptr ? std::nullopt : flows_.relay->why_none_come();
      if (why) {
        state_ = WorkerState::closed;
        why_ = {ErrorCode::roster_closed, "control.relay",
                "the tensors of step " + std::to_string(step.inputs.schedule_id) +
                    " were to come from " + *why};
      }
      return std::nullopt;
    }
    step.inputs.tensors = std::move(tensors->second);
    flows_.tensors.erase(tensors);
  }
  step.inputs.payload = payload_of(*flows_.inputs.next());
  at_work_ = {.schedule_id = step.inputs.schedule_id,
              .cancelled = std::make_shared<std::atomic<bool>>(false)};
  step.cancel_flag = at_work_.cancelled;
  ++stats_.received;
  if (!std::exchange(threads_.beats_fast, true)) heart_->wake();
  if (!sends_outputs()) {
    // Nothing else tells the controller before the next heartbeat, and it waits for all.
    v1::Word applied = word();
    applied.mutable_inputs_applied()->set_sequence(flows_.inputs.applied());
    pipe_->send(applied);
  }
  return step;
}

Result<void> WorkerCore::send_outputs(const StepOutputs& outputs, Deadline deadline) {
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.send_outputs"));
  if (sends_outputs()) {
    v1::StepMessage message;
    message.set_schedule_id(outputs.schedule_id);
    message.set_agreement(outputs.agreement);
    if (outputs.payload.size_bytes() > kMaxStepPayloadBytes) {
      return Error{ErrorCode::message_too_large, "control.send_outputs",
                   "a payload of " + std::to_string(outputs.payload.size_bytes()) +
                       " bytes; at most " + std::to_string(kMaxStepPayloadBytes) + " are legal"};
    }
    message.set_payload(outputs.payload.data(), outputs.payload.size_bytes());
    TENDON_CHECK(send(v1::FLOW_STEP_OUTPUTS, std::move(message), deadline));
  }
  const Lock lock(mutex_);
  if (at_work_.schedule_id == outputs.schedule_id) at_work_ = {};
  return {};
}

Result<void> WorkerCore::signal_microbatch(std::uint64_t schedule_id, Deadline deadline) {
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.signal_microbatch"));
  if (!signals_microbatches()) return {};
  v1::StepMessage message;
  message.set_schedule_id(schedule_id);
  return send(v1::FLOW_STEP_MICROBATCH_OUTPUTS, std::move(message), deadline);
}

Result<void> WorkerCore::rebuild(const Error& cause, Deadline deadline) {
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.rebuild"));
  {
    const Lock lock(mutex_);
    if (state_ == WorkerState::running || state_ == WorkerState::closed) say_failed(cause);
  }
  return enter(deadline);
}

Result<void> WorkerCore::send(v1::Flow flow, v1::StepMessage message, Deadline deadline) {
  std::shared_ptr<const std::string> encoded;
  bool reconnect = false;
  {
    const Lock lock(mutex_);
    if (!moves_steps()) {
      return state_error("control.send");
    }
    message.MergeFrom(message_of(id_, flow, sender_of(flow).next_sequence()));
    message.set_incarnation(place_.incarnation);
    message.set_sender_rank(place_.rank.value);
    encoded = encode(message);
    reconnect = std::exchange(flows_.outputs_break, false);
  }
  if (reconnect) {
    TENDON_CHECK(sockets_->reconnect(v1::FLOW_STEP_OUTPUTS));
    TENDON_CHECK(sockets_->reconnect(v1::FLOW_STEP_MICROBATCH_OUTPUTS));
  }
  TENDON_CHECK(sockets_->send(flow, as_bytes(*encoded), deadline));
  const Lock lock(mutex_);
  // Kept after it was sent: the controller cannot ask for it before the next heartbeat.
  sender_of(flow).keep(std::move(encoded));
  ++stats_.sent;
  return {};
}

void WorkerCore::service(Deadline deadline) {
  const RosterId expected = id_;
  const bool reconnect = std::exchange(flows_.inputs_break, false);
  threads_.polls = true;
  mutex_.unlock();
  if (reconnect) (void)sockets_->reconnect(v1::FLOW_STEP_INPUTS);  // else asked for once more
  sockets_->wait(wake_->fd(), deadline);
  wake_->take();
  TakenMessages taken = take_some(*sockets_, expected);
  mutex_.lock();
  threads_.polls = false;
  stats_.refused += taken.refused;
  if (expected.roster != id_.roster) return;
  for (v1::StepMessage& message : taken.messages) arrived(std::move(message));
}

void WorkerCore::arrived(v1::StepMessage message) {
  if (message.flow() == v1::FLOW_PROBE) {
    flows_.probe = message.nonce();
    return changed();
  }
  if (message.flow() != v1::FLOW_STEP_INPUTS) {
    ++stats_.refused;
    return;
  }
  const std::uint64_t sequence = message.sequence();
  const std::uint64_t size_bytes = message.payload().size();
  switch (flows_.inputs.take(sequence, std::move(message), size_bytes)) {
    case Inputs::Arrival::doubled:
      ++stats_.doubled;
      return;
    case Inputs::Arrival::early:
      ++stats_.parked;
      return ask_again(flows_.inputs.missing_before_parked());
    case Inputs::Arrival::too_early:
      return;
    case Inputs::Arrival::in_order:
      return changed();
  }
}

void WorkerCore::ask_again(std::optional<MissingRange> missing) {
  if (missing) pipe_->send(request_of(*missing, v1::FLOW_STEP_INPUTS, id_));
}

// --- What comes on the worker pipe

void WorkerCore::on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) {
  (void)pipe;
  std::string abort_reason;
  {
    const Lock lock(mutex_);
    const bool mine = word.roster() == id_.roster;
    switch (word.word_case()) {
      case v1::Word::kWelcome:
        if (state_ != WorkerState::joining) break;
        id_.run = word.run_id();
        told_.idle_heartbeat =
            std::chrono::milliseconds(std::max(word.welcome().idle_heartbeat_ms(), 1U));
        told_.step_heartbeat =
            std::chrono::milliseconds(std::max(word.welcome().step_heartbeat_ms(), 1U));
        state_ = WorkerState::waiting;
        break;
      case v1::Word::kRebuild:
        if (word.roster() > id_.roster) told_.rebuild = std::move(word);
        break;
      case v1::Word::kRosterClosed: {
        Error closed{ErrorCode::roster_closed, "control.roster",
                     escaped(word.roster_closed().reason(), kMaxControlTextBytes)};
        if (mine && (state_ == WorkerState::running || state_ == WorkerState::entering)) {
          state_ = WorkerState::closed;
          why_ = std::move(closed);
          abort_reason = why_.detail;
        } else if (state_ == WorkerState::waiting && told_.rebuild.has_value() &&
                   told_.rebuild->roster() == word.roster()) {
          // Over before this worker's thread came to enter it: nobody would end it for it then.
          told_.rebuild.reset();
          id_.roster = word.roster();
          say_failed(closed);
        }
        break;
      }
      case v1::Word::kHeartbeat:
        if (mine && moves_steps()) heard(word.heartbeat());
        break;
      case v1::Word::kResendRequest:
        if (mine && moves_steps()) resend(word.resend_request());
        break;
      case v1::Word::kResent:
        if (moves_steps() && check(word.resent(), id_).has_value()) {
          arrived(std::move(*word.mutable_resent()));
        } else {
          ++stats_.refused;
        }
        break;
      case v1::Word::kNotRetained:
        if (mine && state_ == WorkerState::running) {
          state_ = WorkerState::closed;
          why_ = {ErrorCode::roster_closed, "control.roster",
                  "StepInputs were lost that the controller no longer has"};
          abort_reason = why_.detail;
        }
        break;
      case v1::Word::kStepTensors:
        flows_.tensors_next = mine ? word.step_tensors().schedule_id() : 0;
        break;
      case v1::Word::kCancel: {
        if (at_work_.cancelled != nullptr && at_work_.schedule_id == word.cancel().schedule_id()) {
          at_work_.cancelled->store(true, std::memory_order_relaxed);
        }
        v1::Word reply = this->word();
        reply.mutable_cancel_acknowledged()->set_schedule_id(word.cancel().schedule_id());
        pipe_->send(reply);
        break;
      }
      case v1::Word::kPing:
        pipe_->send(heartbeat(word.ping().nonce()));
        break;
      case v1::Word::kStop:
        if (state_ != WorkerState::ended) {
          // A worker that is making groups would wait for others that have ended.
          if (state_ == WorkerState::entering) abort_reason = "the controller stopped";
          state_ = moves_steps() ? WorkerState::stopping : WorkerState::ended;
          told_.last_inputs = word.stop().last_inputs();
          why_ = {ErrorCode::end_of_stream, "control.stop",
                  "the controller stopped: " + escaped(word.stop().reason(), kMaxControlTextBytes)};
        }
        break;
      case v1::Word::kStoreValue:
        meeting_.store->came(word.store_value());
        break;
      default:
        ++stats_.refused;
        break;
    }
    changed();
  }
  if (!abort_reason.empty()) abort_groups(abort_reason);
}

void WorkerCore::on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) {
  (void)pipe;
  std::uint64_t schedule_id = 0;
  std::uint64_t roster = 0;
  {
    const Lock lock(mutex_);
    schedule_id = std::exchange(flows_.tensors_next, 0);
    roster = id_.roster;
  }
  if (schedule_id != 0) tensors_came(roster, schedule_id, std::move(tensors));
}

void WorkerCore::tensors_came(std::uint64_t roster, std::uint64_t schedule_id, TensorDict tensors) {
  std::shared_ptr<HostRelay> relay;
  {
    const Lock lock(mutex_);
    if (id_.roster != roster) return;
    relay = flows_.relay;
  }
  // Before this worker's program has them: it may end with its step.
  if (relay != nullptr) relay->pass_on(schedule_id, tensors);
  const Lock lock(mutex_);
  if (id_.roster != roster || flows_.tensors.size() >= kMaxParkedMessages) return;
  flows_.tensors[schedule_id] = to_read(std::move(tensors));
  changed();
}

void WorkerCore::on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) {
  (void)pipe;
  std::string reason;
  {
    const Lock lock(mutex_);
    const bool in_order = state_ == WorkerState::stopping || state_ == WorkerState::ended;
    if (!in_order) {
      reason = "the controller is gone: " + why.detail;
      // A refusal is the controller's own word.
      const bool lost = why.code == ErrorCode::peer_lost || why.code == ErrorCode::end_of_stream;
      why_ = {lost ? ErrorCode::peer_lost : why.code, "control.controller",
              lost ? reason : why.detail};
      state_ = WorkerState::ended;
    }
    changed();
  }
  meeting_.store->end();
  if (!reason.empty()) abort_groups(reason);
}

void WorkerCore::heard(const v1::Heartbeat& heartbeat) {
  flows_.outputs.applied(
      std::min(number_of(heartbeat.applied(), v1::FLOW_STEP_OUTPUTS), flows_.outputs.sent()));
  flows_.microbatches.applied(
      std::min(number_of(heartbeat.applied(), v1::FLOW_STEP_MICROBATCH_OUTPUTS),
               flows_.microbatches.sent()));
  const auto missing = flows_.inputs.missing_after_announced(
      number_of(heartbeat.sent(), v1::FLOW_STEP_INPUTS), std::chrono::steady_clock::now());
  if (!missing) return;
  // A program that computes has not looked into its sockets: what it misses may lie there. It is
  // asked for all the same, so that it need not wait; the double is dropped.
  flows_.inputs_break = at_work_.schedule_id == 0;
  ask_again(missing);
}

void WorkerCore::resend(const v1::ResendRequest& request) {
  const bool outputs = request.flow() == v1::FLOW_STEP_OUTPUTS;
  if (!outputs && request.flow() != v1::FLOW_STEP_MICROBATCH_OUTPUTS) {
    ++stats_.refused;
    return;
  }
  flows_.outputs_break = true;
  stats_.resent += send_again(sender_of(request.flow()), request, word(), *pipe_);
}

WorkerCore::Waiting WorkerCore::waiting() const {
  const auto named = [&](const std::shared_ptr<Group>& group,
                         const std::vector<GlobalRank>& members) -> std::optional<Waiting> {
    if (group == nullptr) return std::nullopt;
    const GroupStatus status = group->status();
    if (status.state != GroupStatus::State::in_operation) return std::nullopt;
    Waiting found{to_string(status) + " on group \"" + status.group + "\"", {}};
    for (const GroupRank rank : status.waiting_for) {
      if (rank.value < members.size() && found.ranks.size() < kMaxAwaitedSaid)
        found.ranks.push_back(members[rank.value]);
    }
    return found;
  };
  const ParallelLayout& layout = place_.layout;
  if (auto found = named(groups_.tensor, layout.tensor_group_of(place_.rank).value()))
    return *std::move(found);
  if (auto found = named(groups_.kv, layout.kv_group_of(place_.rank).value()))
    return *std::move(found);
  if (auto found = named(groups_.pipeline, layout.pipeline_group_of(place_.rank).value()))
    return *std::move(found);
  std::vector<GlobalRank> all(layout.world_size());
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) all[rank] = {rank};
  return named(groups_.world, all).value_or(Waiting{});
}

std::uint64_t WorkerCore::collectives() const {
  std::uint64_t count = 0;
  for (const auto& group : all_of(groups_)) count += group->last_complete_sequence();
  return count;
}

v1::Word WorkerCore::heartbeat(std::uint64_t ping) {
  v1::Word beat = word();
  v1::Heartbeat& heartbeat = *beat.mutable_heartbeat();
  (*heartbeat.mutable_sent())[v1::FLOW_STEP_OUTPUTS] = flows_.outputs.sent();
  (*heartbeat.mutable_sent())[v1::FLOW_STEP_MICROBATCH_OUTPUTS] = flows_.microbatches.sent();
  (*heartbeat.mutable_applied())[v1::FLOW_STEP_INPUTS] = flows_.inputs.applied();
  heartbeat.set_schedule_id(at_work_.schedule_id);
  const Waiting waits = waiting();
  heartbeat.set_waiting(escaped(waits.text, kMaxControlTextBytes));
  for (const GlobalRank rank : waits.ranks) heartbeat.add_waiting_for(rank.value);
  heartbeat.set_load(load_.load(std::memory_order_relaxed));
  heartbeat.set_ping(ping);
  heartbeat.set_collectives(collectives());
  return beat;
}

std::chrono::nanoseconds WorkerCore::beat() {
  const Lock lock(mutex_);
  if (moves_steps()) {
    pipe_->send_if_idle(heartbeat(0));
  }
  threads_.beats_fast = at_work_.schedule_id != 0;
  return threads_.beats_fast ? told_.step_heartbeat : told_.idle_heartbeat;
}

void WorkerCore::changed() {
  changed_.notify_all();
  if (threads_.polls) wake_->signal();
}

void WorkerCore::leave(std::string_view reason) {
  {
    const Lock lock(mutex_);
    if (state_ != WorkerState::ended) {
      state_ = WorkerState::ended;
      why_ = {ErrorCode::end_of_stream, "control.leave", std::string(reason)};
    }
    changed();
  }
  abort_groups("this worker leaves: " + std::string(reason));
  if (pipe_ != nullptr) (void)pipe_->close(Deadline::now());
}

}  // namespace tendon::v0::detail
