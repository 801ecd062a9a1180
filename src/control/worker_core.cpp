// SPDX-License-Identifier: Apache-2.0
#include "control/worker_core.hpp"

#include <tendon/tensor/packed.hpp>
#include <utility>

namespace tendon::v0::detail {
namespace {

// The most ranks in a heartbeat.
constexpr std::size_t kMaxAwaitedSaid = 64;

// The workers of the controller's host read the same memory. No worker may write its tensors, so
// that a program does not depend on the host of its worker.
TensorDict to_read(TensorDict tensors) {
  const PackedView* const packed = packed_view(tensors);
  if (packed == nullptr) return tensors;  // a dict of values only
  auto read =
      make_packed(packed->schema, packed->layout, packed->storage.read_only(), packed->values);
  return read ? *std::move(read) : std::move(tensors);
}

}  // namespace

/// Lets one thread at a time move steps.
class WorkerCore::Turn {
 public:
  explicit Turn(WorkerCore& core) : core_(core) {
    const Lock lock(core.mutex_);
    holds_ = !std::exchange(core.has_turn_, true);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!holds_) return;
    const Lock lock(core_.mutex_);
    core_.has_turn_ = false;
  }
  [[nodiscard]] Result<void> check(std::string_view where) const {
    if (holds_) return {};
    return Error{ErrorCode::busy, where, "another thread moves the steps of this worker"};
  }

 private:
  WorkerCore& core_;
  bool holds_ = false;
};

Result<void> WorkerCore::join(Context& context, Pipe pipe, Deadline deadline) {
  const Turn turn(*this);
  context_ = ContextCore::of(context);
  pipe_ = std::make_shared<WorkerPipe>(std::move(pipe), weak_from_this());
  store_ = std::make_shared<PipeStore>(pipe_);
  TENDON_TRY(heart, Heart::start([this] { return beat(); }));
  heart_ = std::move(heart);
  pipe_->start();
  TENDON_TRY(keys, network_->make_keys());
  keys_ = std::move(keys);
  {
    const Lock lock(mutex_);
    pipe_->send(machine_.join(keys_.public_key));
  }
  return enter(deadline);
}

// --- Steps

Result<v0::Step> WorkerCore::next_step(Deadline deadline) {
  TENDON_CHECK(check_process("control.next_step"));
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.next_step"));
  const Lock lock(mutex_);
  while (machine_.moves_steps()) {
    if (auto step = machine_.next_step()) {
      if (!std::exchange(beats_fast_, true)) heart_->wake();
      act();
      return *std::move(step);
    }
    if (machine_.is_done()) break;
    // Tensors are still on their way, unless the pipe for them has ended.
    const auto awaited = machine_.waits_for_tensors_of();
    const auto why = awaited && relay_ != nullptr ? relay_->why_none_come() : std::nullopt;
    if (why) {
      machine_.close(
          {ErrorCode::roster_closed, "control.relay",
           "the tensors of step " + std::to_string(*awaited) + " were to come from " + *why});
      break;
    }
    if (deadline.has_passed())
      return Error{ErrorCode::timeout, "control.next_step", "no step came"};
    service(deadline);
  }
  return machine_.error("control.next_step");
}

Result<void> WorkerCore::send_outputs(const StepOutputs& outputs, Deadline deadline) {
  TENDON_CHECK(check_process("control.send_outputs"));
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.send_outputs"));
  if (place_.sends_outputs()) {
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
  machine_.step_over(outputs.schedule_id);
  return {};
}

Result<void> WorkerCore::signal_microbatch(std::uint64_t schedule_id, Deadline deadline) {
  TENDON_CHECK(check_process("control.signal_microbatch"));
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.signal_microbatch"));
  if (!place_.signals_microbatches()) return {};
  v1::StepMessage message;
  message.set_schedule_id(schedule_id);
  return send(v1::FLOW_STEP_MICROBATCH_OUTPUTS, std::move(message), deadline);
}

Result<void> WorkerCore::rebuild(const Error& cause, Deadline deadline) {
  TENDON_CHECK(check_process("control.rebuild"));
  const Turn turn(*this);
  TENDON_CHECK(turn.check("control.rebuild"));
  {
    const Lock lock(mutex_);
    if (machine_.state() == WorkerState::running || machine_.state() == WorkerState::closed)
      say_failed(cause);
  }
  return enter(deadline);
}

Result<void> WorkerCore::send(v1::Flow flow, v1::StepMessage message, Deadline deadline) {
  std::shared_ptr<const std::string> encoded;
  bool reconnect = false;
  {
    const Lock lock(mutex_);
    if (!machine_.moves_steps()) return machine_.error("control.send");
    encoded = encode(machine_.next_message(flow, std::move(message)));
    reconnect = machine_.take_break(v1::FLOW_STEP_OUTPUTS);
  }
  if (reconnect) {
    TENDON_CHECK(sockets_->reconnect(v1::FLOW_STEP_OUTPUTS));
    TENDON_CHECK(sockets_->reconnect(v1::FLOW_STEP_MICROBATCH_OUTPUTS));
  }
  TENDON_CHECK(sockets_->send(flow, as_bytes(*encoded), deadline));
  const Lock lock(mutex_);
  machine_.sent(flow, std::move(encoded));
  return {};
}

void WorkerCore::service(Deadline deadline) {
  const RosterId expected = machine_.id();
  const bool reconnect = machine_.take_break(v1::FLOW_STEP_INPUTS);
  polls_ = true;
  mutex_.unlock();
  if (reconnect) (void)sockets_->reconnect(v1::FLOW_STEP_INPUTS);  // else it is asked for once more
  sockets_->wait(wake_->fd(), deadline);
  wake_->take();
  TakenMessages taken = take_some(*sockets_, expected);
  mutex_.lock();
  polls_ = false;
  machine_.take(expected.roster, std::move(taken));
  act();
  changed();
}

// --- The worker pipe

void WorkerCore::on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) {
  (void)pipe;
  const Lock lock(mutex_);
  if (word.has_store_value())
    store_->came(word.store_value());
  else
    machine_.hear(std::move(word), std::chrono::steady_clock::now());
  act();
  changed();
}

void WorkerCore::on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) {
  (void)pipe;
  std::uint64_t schedule_id = 0;
  std::uint64_t roster = 0;
  {
    const Lock lock(mutex_);
    schedule_id = machine_.take_announced();
    roster = machine_.id().roster;
  }
  if (schedule_id != 0) tensors_came(roster, schedule_id, std::move(tensors));
}

void WorkerCore::tensors_came(std::uint64_t roster, std::uint64_t schedule_id, TensorDict tensors) {
  std::shared_ptr<HostRelay> relay;
  {
    const Lock lock(mutex_);
    if (machine_.id().roster != roster) return;
    relay = relay_;
  }
  // Before this worker's program has them: it may end with its step.
  if (relay != nullptr) relay->pass_on(schedule_id, tensors);
  const Lock lock(mutex_);
  machine_.keep_tensors(roster, schedule_id, to_read(std::move(tensors)));
  changed();
}

void WorkerCore::on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) {
  (void)pipe;
  {
    const Lock lock(mutex_);
    machine_.ended(why);
    changed();
  }
  store_->end();
  const Lock lock(mutex_);
  act();
}

void WorkerCore::act() {
  std::string abort_reason;
  for (const WorkerAction& action : machine_.take_actions()) {
    switch (action.kind) {
      case WorkerAction::Kind::say:
        pipe_->send(action.word);
        break;
      case WorkerAction::Kind::reply:
        pipe_->send(machine_.heartbeat(action.word.ping().nonce(), groups_at_work(), load_));
        break;
      case WorkerAction::Kind::send_again: {
        const v1::ResendRequest& request = action.word.resend_request();
        machine_.sent_again(send_again(machine_.sender_of(request.flow()), request,
                                       word_of(machine_.id()), *pipe_));
        break;
      }
      case WorkerAction::Kind::abort_groups:
        abort_reason = action.why.detail;
        break;
      case WorkerAction::Kind::fail:
        say_failed(action.why);
        break;
    }
  }
  if (abort_reason.empty()) return;
  const auto groups = all_of(groups_);
  changed();
  mutex_.unlock();
  for (const auto& group : groups) group->abort(abort_reason);
  mutex_.lock();
}

void WorkerCore::changed() {
  changed_.notify_all();
  if (polls_) wake_->signal();
}

GroupsAtWork WorkerCore::groups_at_work() const {
  GroupsAtWork said;
  for (const auto& group : all_of(groups_)) said.collectives += group->last_complete_sequence();
  const auto waits = [&](const std::shared_ptr<Group>& group,
                         const std::vector<GlobalRank>& members) {
    if (group == nullptr) return false;
    const GroupStatus status = group->status();
    if (status.state != GroupStatus::State::in_operation) return false;
    said.waiting = to_string(status) + " on group \"" + status.group + "\"";
    for (const GroupRank rank : status.waiting_for) {
      if (rank.value < members.size() && said.waiting_for.size() < kMaxAwaitedSaid)
        said.waiting_for.push_back(members[rank.value]);
    }
    return true;
  };
  const ParallelLayout& layout = place_.layout;
  std::vector<GlobalRank> all(layout.world_size());
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) all[rank] = {rank};
  (void)(waits(groups_.tensor, layout.tensor_group_of(place_.rank).value()) ||
         waits(groups_.kv, layout.kv_group_of(place_.rank).value()) ||
         waits(groups_.pipeline, layout.pipeline_group_of(place_.rank).value()) ||
         waits(groups_.world, all));
  return said;
}

std::chrono::nanoseconds WorkerCore::beat() {
  const Lock lock(mutex_);
  if (machine_.moves_steps()) pipe_->send_if_idle(machine_.heartbeat(0, groups_at_work(), load_));
  beats_fast_ = machine_.is_at_work();
  return machine_.beat_interval();
}

void WorkerCore::leave(std::string_view reason) {
  {
    const Lock lock(mutex_);
    machine_.leave(reason);
    act();
    changed();
  }
  if (pipe_ != nullptr) (void)pipe_->close(Deadline::now());
}

}  // namespace tendon::v0::detail
