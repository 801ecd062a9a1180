// SPDX-License-Identifier: Apache-2.0
#include "control/controller_core.hpp"

#include <algorithm>
#include <utility>

#include "control/relay/host_relay.hpp"
#include "runtime/strangers.hpp"
#include "session/proofs.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::chrono::milliseconds kProbeInterval{10};
constexpr std::size_t kProbesInQueue = 16;
constexpr std::size_t kSubscriptionsPerWorker = 4;
// The interval at which workers that hold up a roster are checked.
constexpr std::chrono::milliseconds kLookInterval{1000};

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
      machine_(layout, options_, std::move(run_id)),
      pipes_(layout.world_size()),
      store_(layout.world_size()) {}

Result<void> ControllerCore::serve(std::shared_ptr<ContextCore> context, Listener listener) {
  TENDON_TRY(heart, Heart::start([this] { return beat(); }));
  heart_ = std::move(heart);
  context_ = std::move(context);
  reception_.open(std::move(listener), weak_from_this());
  return {};
}

// --- Worker pipes

std::optional<GlobalRank> ControllerCore::rank_of(const WorkerPipe& pipe) const {
  for (std::uint32_t rank = 0; rank < pipes_.size(); ++rank)
    if (pipes_[rank].words.get() == &pipe) return GlobalRank{rank};
  return std::nullopt;
}

void ControllerCore::on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) {
  Result<void> done;
  {
    const Lock lock(mutex_);
    if (const auto rank = rank_of(*pipe))
      hear(*rank, std::move(word));
    else if (reception_.leave(pipe))
      done = let_in(pipe, word);
    else if (std::ranges::find(pipes_, pipe, &Pipes::tensors) != pipes_.end())
      done = Error{ErrorCode::protocol_violation, "control.pipe",
                   "a worker says nothing on the pipe for its tensors"};
  }
  if (done.has_value()) return;
  const std::string name = pipe->peer().to_string();
  refuse_stranger(context_.get(), "control.join", {name, name}, done.error().detail);
  pipe->cancel(done.error());
}

Result<void> ControllerCore::let_in(const std::shared_ptr<WorkerPipe>& pipe, const v1::Word& word) {
  if (word.has_relay_join()) {
    TENDON_TRY(welcome, machine_.join_tensors(word, pipe->peer()));
    pipes_[word.relay_join().rank()].tensors = pipe;
    pipe->send(welcome);
    return {};
  }
  if (!word.has_join()) {
    return Error{ErrorCode::protocol_violation, "control.join",
                 "the first word of a worker is Join"};
  }
  TENDON_TRY(welcome, machine_.join(word.join(), pipe->peer(), Clock::now()));
  pipes_[word.join().rank()].words = pipe;
  pipe->send(welcome);
  changed();
  return {};
}

void ControllerCore::hear(GlobalRank rank, v1::Word word) {
  // Only calls that broadcast steps wait for it.
  const bool is_waited_for = !word.has_inputs_applied() || !turns_.is_empty();
  const std::shared_ptr<WorkerPipe>& pipe = pipes_[rank.value].words;
  if (word.has_store_set())
    store_.set(pipe, word.store_set().key(), word.store_set().value());
  else if (word.has_store_get())
    store_.get(pipe, word.store_get().key());
  else
    machine_.hear(rank, std::move(word), Clock::now());
  act();
  if (is_waited_for) changed();
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
  const auto rank = rank_of(*pipe);
  if (!rank) return;
  end_tensors(*rank);
  pipes_[rank->value].words = nullptr;
  machine_.lost(*rank, why, Clock::now());
  act();
  changed();
}

void ControllerCore::end_tensors(GlobalRank rank) {
  if (const auto tensors = std::exchange(pipes_[rank.value].tensors, nullptr))
    tensors->cancel({ErrorCode::end_of_stream, "control.roster", "the roster is over"});
}

void ControllerCore::act() {
  std::vector<std::pair<std::shared_ptr<WorkerPipe>, Error>> given_up;
  for (const RosterAction& action : machine_.take_actions()) {
    const std::shared_ptr<WorkerPipe>& pipe = pipes_[action.rank.value].words;
    switch (action.kind) {
      case RosterAction::Kind::say:
        pipe->send(action.word);
        break;
      case RosterAction::Kind::say_if_idle:
        pipe->send_if_idle(action.word);
        break;
      case RosterAction::Kind::send_again:
        machine_.sent_again(send_again(machine_.inputs(), action.word.resend_request(),
                                       word_of(machine_.id()), *pipe));
        break;
      case RosterAction::Kind::end_tensors:
        end_tensors(action.rank);
        break;
      case RosterAction::Kind::give_up:
        end_tensors(action.rank);
        given_up.emplace_back(std::exchange(pipes_[action.rank.value].words, nullptr), action.why);
        break;
    }
  }
  if (given_up.empty()) return;
  changed();
  mutex_.unlock();
  for (const auto& [pipe, why] : given_up) pipe->cancel(why);
  mutex_.lock();
}

void ControllerCore::changed() {
  changed_.notify_all();
  if (reading_) wake_->signal();
}

std::chrono::nanoseconds ControllerCore::beat() {
  const Lock lock(mutex_);
  beats_fast_ = machine_.beat();
  act();
  return beats_fast_ ? options_.step_heartbeat : options_.idle_heartbeat;
}

// --- Rosters

Result<void> ControllerCore::wait_for_workers(Deadline deadline) {
  TENDON_CHECK(check_process("control.wait_for_workers"));
  const Lock lock(mutex_);
  // A loss must be acknowledged: the caller of rebuild() knows of it.
  if (machine_.state() == RosterState::closed) return machine_.error("control.form");
  return form(deadline);
}

Result<void> ControllerCore::rebuild(Deadline deadline) {
  TENDON_CHECK(check_process("control.rebuild"));
  const Lock lock(mutex_);
  return form(deadline);
}

Result<void> ControllerCore::form(Deadline deadline) {
  if (runs(machine_.state())) return {};
  Error last;
  for (std::uint32_t attempt = 0; attempt < kMaxRosterAttempts; ++attempt) {
    if (machine_.state() == RosterState::stopped || machine_.state() == RosterState::failed)
      return machine_.error("control.form");
    // Else the deadline of an earlier call passed midway.
    if (machine_.state() != RosterState::forming) {
      machine_.gather();
      TENDON_CHECK(fill_seats(deadline));
      TENDON_CHECK(open_roster());
    }
    Result<void> probed = probe(deadline);
    if (probed.has_value()) return {};
    if (probed.error().code == ErrorCode::timeout || machine_.state() == RosterState::stopped)
      return probed;
    last = probed.error();
  }
  const Error why{ErrorCode::worker_lost, "control.form",
                  std::to_string(kMaxRosterAttempts) +
                      " attempts to form a roster failed; the last: " + last.detail};
  machine_.fail(why);
  act();
  changed();
  return why;
}

Result<void> ControllerCore::start_missing(std::map<GlobalRank, Started>& started) {
  for (const GlobalRank rank : machine_.seats().in(SeatState::empty)) {
    const WorkerSeat& seat = machine_.seats().at(rank);
    if (seat.state != SeatState::empty) continue;  // it connected while another one was started
    Started& its = started[rank];
    // The new worker is on its way; the last one that was here is the same as before.
    if (its.times > 0 && its.after == seat.heard.identity) continue;
    if (its.times >= kMaxRosterAttempts) {
      return Error{ErrorCode::worker_lost, "control.form",
                   name_of(seat) + " has ended, as did " + std::to_string(its.times - 1) +
                       " before it that were started for the same roster"};
    }
    its = {seat.heard.identity, its.times + 1};
    mutex_.unlock();
    Result<void> done = options_.start_worker(rank);
    mutex_.lock();
    if (!done.has_value()) return done;
  }
  return {};
}

Result<void> ControllerCore::fill_seats(Deadline deadline) {
  const WorkerSeats& seats = machine_.seats();
  std::map<GlobalRank, Started> started;
  while (!seats.all(SeatState::waiting)) {
    if (machine_.state() == RosterState::stopped) return machine_.error("control.form");
    Deadline look = deadline;
    if (options_.start_worker) {
      machine_.look_for_hung(Clock::now());
      act();
      TENDON_CHECK(start_missing(started));
      if (seats.all(SeatState::waiting)) break;
      look = earlier(deadline, Deadline(std::min(kLookInterval, options_.hang_timeout)));
    }
    if (deadline.has_passed()) {
      std::string text;
      if (const auto empty = seats.in(SeatState::empty); !empty.empty())
        text = text_of(empty) + " of " + std::to_string(seats.size()) + " did not come";
      if (const auto failing = seats.in(SeatState::failing); !failing.empty()) {
        text += (text.empty() ? "" : "; ") + text_of(failing) +
                " did not say that they are done with the roster before";
      }
      return Error{ErrorCode::timeout, "control.form", std::move(text)};
    }
    (void)changed_.wait_until(mutex_, look);
  }
  return {};
}

Result<void> ControllerCore::open_roster() {
  StepPlace place;
  if (profile_of(options_) == Profile::plaintext)
    place = {.host = host_of(address()),
             .profile = profile_of(options_),
             .worker_keys = machine_.seats().public_keys()};
  // A worker has taken all but the steps in flight; a stranger that never reads keeps no more.
  place.queued_inputs = machine_.steps().limit() + kProbesInQueue;
  place.most_subscriptions = kSubscriptionsPerWorker * layout_.world_size();
  TENDON_TRY(sockets, network_->bind(place));
  // The messages of an earlier roster end with its sockets.
  sockets_ = std::move(sockets);
  store_.forget_all_of(HostRelay::kStoreKeys);
  machine_.open(sockets_->endpoints(), Clock::now());
  act();
  return {};
}

Result<void> ControllerCore::probe(Deadline deadline) {
  const auto encoded = encode(machine_.probe());
  while (machine_.state() == RosterState::forming) {
    if (machine_.seats().all(SeatState::ready)) {
      Result<void> same = machine_.run(Clock::now());
      act();
      changed();
      return same;
    }
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.form",
                   text_of(machine_.seats().in(SeatState::forming)) +
                       " did not become ready in roster " + std::to_string(machine_.id().roster)};
    }
    TENDON_CHECK(sockets_->publish(as_bytes(*encoded)));
    if (options_.start_worker) machine_.look_for_hung(Clock::now());
    act();
    (void)changed_.wait_until(mutex_, earlier(deadline, Deadline(kProbeInterval)));
  }
  return machine_.error("control.form");
}

Error ControllerCore::await_cause(std::string_view where, Deadline deadline) {
  while (const auto cause = machine_.cause_may_come_until()) {
    const Deadline until = earlier(deadline, Deadline::at(*cause));
    if (until.has_passed()) break;
    (void)changed_.wait_until(mutex_, until);
  }
  return machine_.error(where);
}

Result<void> ControllerCore::stop(std::string_view reason, Deadline deadline) {
  TENDON_CHECK(check_process("control.stop"));
  reception_.close();
  const Lock lock(mutex_);
  machine_.stop(reason, machine_.inputs().sent());
  act();
  changed();
  while (!machine_.seats().all(SeatState::empty)) {
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.stop",
                   text_of(machine_.seats().taken()) + " did not end"};
    }
    // Outputs of the last steps are read, so that no worker waits for room.
    service(deadline);
  }
  return {};
}

void ControllerCore::abandon() {
  reception_.close();
  const auto silent = reception_.take_silent();
  std::vector<std::shared_ptr<WorkerPipe>> pipes(silent.begin(), silent.end());
  {
    const Lock lock(mutex_);
    // It sends nothing again, and does not wait for what is missing.
    if (machine_.state() != RosterState::stopped) machine_.stop("the controller is gone", 0);
    act();
    for (const Pipes& of_rank : pipes_)
      for (const auto& pipe : {of_rank.words, of_rank.tensors})
        if (pipe != nullptr) pipes.push_back(pipe);
    changed();
  }
  for (const auto& pipe : pipes) (void)pipe->close(Deadline::now());
}

// --- Steps

void ControllerCore::service(Deadline deadline) {
  const std::shared_ptr<ControllerSockets> sockets = sockets_;
  if (reading_ || sockets == nullptr) {
    (void)changed_.wait_until(mutex_, deadline);
    return;
  }
  reading_ = true;
  const RosterId expected = machine_.id();
  mutex_.unlock();
  sockets->wait(wake_->fd(), deadline);
  wake_->take();
  TakenMessages taken = take_some(*sockets, expected);
  mutex_.lock();
  reading_ = false;
  machine_.take(expected.roster, std::move(taken));
  act();
  changed();
}

Result<void> ControllerCore::broadcast(const StepInputs& inputs, Deadline deadline) {
  TENDON_CHECK(check_process("control.broadcast"));
  StepCall call{.inputs = inputs};
  Result<void> given = broadcast(call, deadline);
  end(call);
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
    if (machine_.state() != RosterState::running) return await_cause("control.broadcast", deadline);
    TENDON_CHECK(turns_.join(inputs.schedule_id));
    call.has_turn = true;
  }
  TENDON_CHECK(await_room(inputs.schedule_id, deadline));
  while (!inputs.tensors.empty()) {
    // Tensors that cannot be sent to one rank are sent to none.
    for (const auto& pipe : tensor_pipes()) TENDON_CHECK(pipe->check(inputs.tensors));
    if (call.tensors != nullptr) break;
    const std::shared_ptr<WorkerPipe> any = pipes_.front().words;
    lock.unlock();  // a large copy takes long
    TENDON_TRY(kept, any->keep(inputs.tensors));
    call.tensors = std::move(kept);
    lock.lock();
    // There was room before. The roster may be another one.
    TENDON_CHECK(await_room(inputs.schedule_id, deadline));
  }
  const auto encoded = encode(machine_.next_inputs(inputs));
  TENDON_CHECK(sockets_->publish(as_bytes(*encoded)));
  machine_.given(inputs.schedule_id, encoded, Clock::now());
  turns_.given(inputs.schedule_id);
  if (!std::exchange(beats_fast_, true)) heart_->wake();
  if (call.tensors == nullptr) return {};
  v1::Word announced = word_of(machine_.id());
  announced.mutable_step_tensors()->set_schedule_id(inputs.schedule_id);
  const auto pipes = tensor_pipes();
  lock.unlock();
  for (const auto& pipe : pipes) pipe->send(announced, call.tensors);
  return {};
}

std::vector<std::shared_ptr<WorkerPipe>> ControllerCore::tensor_pipes() const {
  std::vector<std::shared_ptr<WorkerPipe>> found;
  for (const GlobalRank rank : machine_.tensor_ranks()) {
    const Pipes& pipes = pipes_[rank.value];
    found.push_back(pipes.tensors != nullptr ? pipes.tensors : pipes.words);
  }
  return found;
}

void ControllerCore::end(const StepCall& call) {
  const Lock lock(mutex_);
  if (!call.has_turn) return;
  turns_.leave(call.inputs.schedule_id);
  changed();
}

Result<void> ControllerCore::await_room(std::uint64_t schedule_id, Deadline deadline) {
  while (machine_.state() == RosterState::running) {
    const bool is_first = turns_.first() == schedule_id;
    const std::string why = machine_.why_no_room();
    if (is_first && why.empty()) break;
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.broadcast",
                   is_first ? why : behind(schedule_id, turns_.first(), why)};
    }
    if (is_first)
      service(deadline);
    else
      (void)changed_.wait_until(mutex_, deadline);
  }
  if (machine_.state() != RosterState::running) return await_cause("control.broadcast", deadline);
  if (machine_.steps().uncollected() >= kMaxUncollectedSteps) {
    return Error{ErrorCode::limit_exceeded, "control.broadcast",
                 std::to_string(kMaxUncollectedSteps) +
                     " steps are complete and were not collected: call collect()"};
  }
  return {};
}

Result<std::vector<StepOutputs>> ControllerCore::collect(std::uint64_t schedule_id,
                                                         Deadline deadline) {
  TENDON_CHECK(check_process("control.collect"));
  const Lock lock(mutex_);
  StepLedger& steps = machine_.steps();
  while (true) {
    if (steps.is_complete(schedule_id)) return steps.collect(schedule_id);
    if (!runs(machine_.state())) return await_cause("control.collect", deadline);
    if (!steps.has(schedule_id)) {
      return Error{ErrorCode::invalid_argument, "control.collect",
                   "step " + std::to_string(schedule_id) +
                       " was not given out in this roster, or was collected before"};
    }
    if (deadline.has_passed()) {
      return Error{ErrorCode::timeout, "control.collect",
                   "step " + std::to_string(schedule_id) + " waits for " +
                       text_of(steps.missing(schedule_id))};
    }
    service(deadline);
  }
}

Result<void> ControllerCore::wait_for_microbatch(std::uint64_t schedule_id, Deadline deadline) {
  TENDON_CHECK(check_process("control.wait_for_microbatch"));
  const Lock lock(mutex_);
  while (!machine_.steps().has_microbatch(schedule_id)) {
    if (!runs(machine_.state())) return await_cause("control.microbatch", deadline);
    if (!machine_.steps().has(schedule_id)) {
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
  TENDON_CHECK(check_process("control.cancel_step"));
  const Lock lock(mutex_);
  if (!machine_.steps().has(schedule_id)) {
    return Error{ErrorCode::invalid_argument, "control.cancel",
                 "step " + std::to_string(schedule_id) + " is not in flight"};
  }
  machine_.cancel(schedule_id);
  act();
  while (true) {
    if (!runs(machine_.state())) return await_cause("control.cancel", deadline);
    const WorkerSeats& seats = machine_.seats();
    std::vector<GlobalRank> silent = seats.in(SeatState::ready);
    std::erase_if(silent,
                  [&](GlobalRank rank) { return seats.at(rank).cancelled_id >= schedule_id; });
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
  TENDON_CHECK(check_process("control.ask"));
  const Lock lock(mutex_);
  if (rank.value >= pipes_.size()) {
    return Error{
        ErrorCode::invalid_argument, "control.ask",
        "rank " + std::to_string(rank.value) + " of " + std::to_string(pipes_.size()) + " workers"};
  }
  const std::shared_ptr<WorkerPipe> pipe = pipes_[rank.value].words;
  if (pipe == nullptr) {
    return Error{ErrorCode::not_found, "control.ask",
                 "rank " + std::to_string(rank.value) + " has no worker now"};
  }
  const std::uint64_t nonce = machine_.ping(rank);
  act();
  const WorkerSeat& seat = machine_.seats().at(rank);
  while (pipes_[rank.value].words == pipe && seat.ping < nonce) {
    if (deadline.has_passed())
      return Error{ErrorCode::timeout, "control.ask", name_of(seat) + " does not reply"};
    (void)changed_.wait_until(mutex_, deadline);
  }
  if (pipes_[rank.value].words != pipe) {
    return Error{ErrorCode::worker_lost, "control.ask",
                 "rank " + std::to_string(rank.value) + " was lost while it was asked"};
  }
  return machine_.status(Clock::now()).workers[rank.value];
}

Result<void> ControllerCore::drain(Deadline deadline) {
  TENDON_CHECK(check_process("control.drain"));
  const Lock lock(mutex_);
  machine_.drain();
  while (!machine_.steps().is_idle()) {
    if (!runs(machine_.state())) return await_cause("control.drain", deadline);
    if (deadline.has_passed())
      return Error{ErrorCode::timeout, "control.drain", machine_.steps().why_busy()};
    service(deadline);
  }
  return {};
}

}  // namespace tendon::v0::detail
