// SPDX-License-Identifier: Apache-2.0
#include "controller/engine.hpp"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <thread>
#include <utility>

#include "program/payload.hpp"

namespace engine {
namespace {

using namespace std::chrono_literals;
using tendon::ErrorCode;
using tendon::Value;

constexpr auto kStatusInterval = 200ms;
// The front is served at this interval while a step runs.
constexpr auto kLook = 5ms;
constexpr auto kLookAtForming = 20ms;
// The time for a roster to form: a worker imports torch and maps its weights, on a busy machine.
constexpr auto kFormPatience = 120s;
constexpr std::uint32_t kMaxFormingFailures = 3;
constexpr auto kBroadcastPatience = 5s;
// The time for workers to end by themselves.
constexpr auto kStopPatience = 5s;
// The end of a worker's process is seen up to this much later than a survivor's report.
constexpr auto kFindLostPatience = 2s;
constexpr std::size_t kDeathsShown = 16;

std::uint64_t wall_clock_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

/// The timeout for one move of a step. A hanging worker is killed before the workers that wait for
/// it time out, even if they waited for it earlier while it worked.
std::uint32_t move_timeout_ms(std::chrono::seconds hang_timeout) {
  return static_cast<std::uint32_t>(std::chrono::milliseconds(2 * hang_timeout + 30s).count());
}

/// Parses the rank: the controller's texts begin with the worker, "rank 2 (...) ...".
std::uint32_t rank_in(const std::string& text) {
  unsigned rank = 0;
  return std::sscanf(text.c_str(), "rank %u", &rank) == 1 ? rank : 0;
}

}  // namespace

tendon::Result<std::unique_ptr<Engine>> Engine::open(EngineOptions options) {
  TENDON_TRY(context, tendon::Context::create({.name = "engine controller"}));
  auto engine = std::make_unique<Engine>(std::move(options), std::move(context));
  Engine* self = engine.get();
  tendon::ControllerOptions control{.hang_timeout = self->options_.hang_timeout};
  if (!self->options_.start_workers.usual.empty()) {
    self->processes_.emplace(self->options_.start_workers);
    TENDON_CHECK(self->processes_->prepare());
    control.start_worker = [self](tendon::GlobalRank rank) {
      return self->processes_->start(rank, self->controller_->address());
    };
  }
  TENDON_TRY(controller,
             tendon::Controller::bind(self->context_, self->options_.layout,
                                      self->options_.workers_address, std::move(control)));
  self->controller_.emplace(std::move(controller));
  TENDON_TRY(front, Front::listen(self->context_, self->options_.front_address, self->inbox_));
  self->front_ = std::move(front);
  return engine;
}

Engine::Engine(EngineOptions options, tendon::Context context)
    : options_(std::move(options)), context_(std::move(context)), scheduler_(options_.limits) {}

Engine::~Engine() = default;

std::string_view Engine::name_of(State state) {
  switch (state) {
    case State::starting:
      return "starting";
    case State::running:
      return "running";
    case State::rebuilding:
      return "rebuilding";
    case State::failed:
      return "failed";
  }
  return "unknown";
}

int Engine::run(const std::atomic<int>& signal) {
  form_roster();
  while (true) {
    hear_front();
    if (signal.load() != 0 && !ends_at_) ends_at_ = Clock::now() + options_.drain_timeout;
    if (state_ == State::starting || state_ == State::rebuilding) look_at_forming();
    if (state_ == State::running) give_steps();
    tell_front();
    if (Clock::now() >= status_due_) tell_status();
    if (state_ == State::failed) return end();
    // Without a running roster the engine ends at once: a new one may take minutes to form.
    if (ends_at_ && ((scheduler_.is_idle() && in_flight_.empty()) || Clock::now() >= *ends_at_ ||
                     state_ != State::running)) {
      return end();
    }
    if (state_ != State::running) {
      inbox_.wait(kLookAtForming);
    } else if (in_flight_.empty()) {
      inbox_.wait(std::max<Clock::duration>(status_due_ - Clock::now(), 0ms));
    } else {
      take_outputs();
    }
  }
}

// --- The front

void Engine::hear_front() {
  for (FrontEvent& event : inbox_.take()) {
    if (auto* message = std::get_if<FrontMessage>(&event)) {
      hear(std::move(*message));
      continue;
    }
    scheduler_.fail_all({.code = "cancelled", .message = "the front went away"});
    // There is no front to send them to, and the next front did not ask for them.
    (void)scheduler_.take_notices();
  }
}

void Engine::hear(FrontMessage message) {
  if (const auto* wrong = std::get_if<Malformed>(&message)) {
    return front_->send(refused_message(wrong->id, {RefusalCode::malformed, wrong->message}));
  }
  if (const auto* cancel = std::get_if<Cancel>(&message)) return scheduler_.cancel(cancel->id);
  if (const auto* finish = std::get_if<Finish>(&message)) return scheduler_.finish(finish->id);
  Request& request = std::get<Submit>(message).request;
  request.arrival_ns = wall_clock_ns();
  const std::string id = request.id;
  if (ends_at_) {
    return front_->send(
        refused_message(id, {RefusalCode::stopping, "the engine stops; ask another"}));
  }
  if (const auto refusal = scheduler_.submit(std::move(request))) {
    return front_->send(refused_message(id, *refusal));
  }
  front_->send(accepted_message(id));
}

void Engine::tell_front() {
  for (const Notice& notice : scheduler_.take_notices()) {
    if (const auto* told = std::get_if<NewTokens>(&notice)) {
      meter_.count_tokens(told->tokens.size());
    }
    front_->send(message_of(notice));
  }
}

Value Engine::workers_now() const {
  Value::List workers;
  for (const tendon::WorkerStatus& worker : controller_->status().workers) {
    const auto known = identities_.find(worker.rank.value);
    workers.emplace_back(Value::Map{
        {"rank", worker.rank.value},
        {"identity", known == identities_.end() ? std::string() : known->second.to_string()},
        {"alive", worker.state != tendon::WorkerStatus::State::gone},
        {"state", tendon::to_string(worker.state)},
        {"waiting", worker.waiting},
        {"step_ms", meter_.of_rank(worker.rank.value, worker.load)}});
  }
  return workers;
}

void Engine::tell_status() {
  const Clock::time_point now = Clock::now();
  status_due_ = now + kStatusInterval;
  const tendon::ControllerStatus status = controller_->status();
  note_identities(status);
  if (processes_) {
    for (const tendon::WorkerStatus& worker : status.workers) {
      if (worker.stalled >= options_.hang_timeout) processes_->kill(worker.rank);
    }
  }
  // A worker may die while no step is pending.
  if (state_ == State::running && status.state == tendon::RosterState::closed) {
    lose_workers({ErrorCode::worker_lost, "engine.workers", status.reason});
  }
  Value rate = meter_.rate(now);
  if (!front_->is_there()) return;
  const tendon::ParallelSizes& sizes = options_.layout.sizes();
  const SchedulerLoad load = scheduler_.load();
  auto json = tendon::to_json(Value::Map{
      {"kind", "status"},
      {"state", name_of(state_)},
      {"roster", status.roster},
      {"layout",
       Value::Map{{"tensor", sizes.tensor}, {"pipeline", sizes.pipeline}, {"kv", sizes.kv}}},
      {"model", Value::Map{{"name", options_.model}, {"context", options_.limits.context}}},
      {"queue",
       Value::Map{
           {"waiting", load.waiting}, {"running", load.running}, {"limit", options_.limits.queue}}},
      {"kv",
       Value::Map{
           {"blocks", load.blocks}, {"used", load.used_blocks}, {"block_size", kBlockTokens}}},
      {"rate", std::move(rate)},
      {"step", meter_.step()},
      {"workers", workers_now()},
      {"deaths", deaths_}});
  if (json.has_value()) front_->send(*std::move(json));
}

// --- The roster

void Engine::form_roster() {
  forming_ = std::async(std::launch::async,
                        [this] { return controller_->rebuild(tendon::Deadline(kFormPatience)); });
}

void Engine::look_at_forming() {
  if (forming_.wait_for(0s) != std::future_status::ready) return look_at_exits();
  const tendon::Result<void> formed = forming_.get();
  if (formed.has_value()) {
    look_at_exits();  // the exits of replaced workers
    state_ = State::running;
    forming_failures_ = 0;
    return;
  }
  const bool again = formed.error().code == ErrorCode::timeout &&
                     (!processes_ || ++forming_failures_ < kMaxFormingFailures);
  if (!again) return fail(formed.error().message());
  std::cerr << "engine_controller: " << formed.error().detail << "; waiting again\n";
  form_roster();
}

void Engine::note_identities(const tendon::ControllerStatus& status) {
  for (const tendon::WorkerStatus& worker : status.workers) {
    // Keeps the last known identity of a rank without a worker.
    if (worker.identity.pid != 0) identities_.insert_or_assign(worker.rank.value, worker.identity);
  }
}

void Engine::reap() {
  if (!processes_) return;
  for (WorkerProcesses::Exit& exit : processes_->reap()) exits_.push_back(std::move(exit));
}

/// The controller replaces a worker that had joined and then ended. A worker whose program ends
/// before it joins is restarted here; otherwise forming would time out.
void Engine::look_at_exits() {
  reap();
  const tendon::ControllerStatus status = controller_->status();
  note_identities(status);
  for (const WorkerProcesses::Exit& exit : std::exchange(exits_, {})) {
    const tendon::PeerIdentity& last = status.workers[exit.rank].identity;
    const std::string name =
        "rank " + std::to_string(exit.rank) + " (" +
        (last.pid == exit.pid ? last.to_string() : "pid " + std::to_string(exit.pid)) + ")";
    if (exit.replaced) {
      note_death(
          exit.rank, exit.pid,
          name + " was replaced while a roster was formed; its process ended by " + exit.how);
    } else if (last.pid == exit.pid) {
      note_death(
          exit.rank, exit.pid,
          name + " is gone; its process ended by " + exit.how + " while a roster was formed");
    } else {
      const std::string what = "the program of rank " + std::to_string(exit.rank) +
                               " ended before it joined: " + exit.how;
      std::cerr << "engine_controller: " << what << "\n";
      if (++forming_failures_ >= kMaxFormingFailures) return fail(what);
      const auto started = processes_->start({exit.rank}, controller_->address());
      if (!started.has_value()) return fail(started.error().message());
    }
  }
}

void Engine::note_death(std::uint32_t rank, std::int64_t pid, std::string what) {
  if (pid != 0 && std::exchange(last_deaths_[rank], pid) == pid) return;
  std::cerr << "engine_controller: " << what << "\n";
  deaths_.emplace_back(Value::Map{{"rank", rank},
                                  {"what", std::move(what)},
                                  {"at", static_cast<double>(wall_clock_ns()) / 1e9}});
  if (deaths_.size() > kDeathsShown) deaths_.erase(deaths_.begin());
}

/// Finds the ranks that have ended, and how. A survivor may report first that its step failed
/// because a member died. The end of that member's pipe and process is seen a little later. If a
/// worker lives on after an error of its own, no rank has ended.
std::map<std::uint32_t, std::string> Engine::find_lost(std::span<const tendon::GlobalRank> killed) {
  std::map<std::uint32_t, std::string> lost;
  const Clock::time_point until = Clock::now() + kFindLostPatience;
  while (true) {
    reap();
    const tendon::ControllerStatus status = controller_->status();
    note_identities(status);
    lost.clear();
    bool all_known = true;
    for (const tendon::WorkerStatus& worker : status.workers) {
      const auto exit = std::ranges::find_if(exits_, [&](const WorkerProcesses::Exit& each) {
        return each.rank == worker.rank.value && each.pid == worker.identity.pid;
      });
      const bool is_gone = worker.state == tendon::WorkerStatus::State::gone;
      if (!is_gone && exit == exits_.end()) continue;
      // Its pipe and its process do not end at the same time.
      if (!is_gone || (processes_ && exit == exits_.end())) all_known = false;
      lost[worker.rank.value] = exit == exits_.end() ? std::string() : exit->how;
    }
    const bool all_gone = std::ranges::all_of(
        killed, [&](tendon::GlobalRank rank) { return lost.contains(rank.value); });
    if ((all_known && all_gone && !lost.empty()) || Clock::now() >= until) return lost;
    std::this_thread::sleep_for(kLook);
  }
}

void Engine::lose_workers(const tendon::Error& why, std::span<const tendon::GlobalRank> killed) {
  const auto lost = find_lost(killed);
  // The error of a worker that lives on also ends the roster, but it is no death.
  if (lost.empty()) std::cerr << "engine_controller: " << why.detail << "\n";
  const std::uint32_t first = lost.empty() ? rank_in(why.detail) : lost.begin()->first;
  std::string cause = why.detail;
  for (const auto& [rank, how] : lost) {
    std::string what = why.detail;
    if (rank != rank_in(why.detail)) {
      what = "rank " + std::to_string(rank) + " (" + identities_[rank].to_string() + ") is gone; " +
             why.detail;
    }
    if (!how.empty()) what += "; its process ended by " + how;
    if (rank == first) cause = what;
    note_death(rank, identities_[rank].pid, std::move(what));
  }
  std::erase_if(exits_, [&](const WorkerProcesses::Exit& exit) {
    return lost.contains(exit.rank) && identities_[exit.rank].pid == exit.pid;
  });
  scheduler_.lose_workers(
      {.rank = first, .host = identities_[first].host, .cause = std::move(cause)});
  in_flight_.clear();
  meter_.clear();
  state_ = State::rebuilding;
  form_roster();
}

void Engine::replace(std::span<const tendon::GlobalRank> ranks, const std::string& why) {
  if (!processes_) return fail(why);
  for (const tendon::GlobalRank rank : ranks) processes_->kill(rank);
  lose_workers({ErrorCode::worker_lost, "engine.outputs", why}, ranks);
}

void Engine::fail(const std::string& why) {
  std::cerr << "engine_controller: " << why << "\n";
  scheduler_.fail_all({.code = "worker_lost", .message = why});
  state_ = State::failed;
}

// --- Steps

void Engine::give_steps() {
  while (auto step = scheduler_.next_step()) {
    const std::uint64_t schedule_id = step->scheduler_output().schedule_id();
    meter_.given(*step, Clock::now());
    step->set_move_timeout_ms(move_timeout_ms(options_.hang_timeout));
    const auto given = controller_->broadcast(
        {.schedule_id = schedule_id, .payload = payload_of(*step)}, kBroadcastPatience);
    if (!given.has_value()) {
      if (given.error().code == ErrorCode::worker_lost) return lose_workers(given.error());
      return fail(given.error().message());
    }
    in_flight_.push_back(schedule_id);
  }
}

void Engine::take_outputs() {
  const auto outputs = controller_->collect(in_flight_.front(), kLook);
  if (outputs.has_value()) return take(in_flight_.front(), *outputs);
  if (outputs.error().code == ErrorCode::timeout) return;
  if (outputs.error().code == ErrorCode::worker_lost) return lose_workers(outputs.error());
  if (outputs.error().code != ErrorCode::divergence) return fail(outputs.error().message());
  // The engine cannot tell which of the workers is right.
  const tendon::ParallelSizes& sizes = options_.layout.sizes();
  std::vector<tendon::GlobalRank> said;
  for (std::uint32_t kv = 0; kv < sizes.kv; ++kv)
    said.push_back(options_.layout.rank_of({.pipeline = sizes.pipeline - 1, .kv = kv}).value());
  replace(said, outputs.error().message());
}

void Engine::take(std::uint64_t schedule_id, const std::vector<tendon::StepOutputs>& outputs) {
  const bool counts = meter_.accepted(schedule_id, Clock::now());
  in_flight_.pop_front();
  std::optional<v1::StepOutputs> of_first;  // of KV rank 0, with the tokens
  for (const tendon::StepOutputs& each : outputs) {
    v1::StepOutputs parsed;
    if (!parsed.ParseFromArray(each.payload.data(), static_cast<int>(each.payload.size_bytes())) ||
        parsed.schedule_id() != schedule_id) {
      return replace({&each.rank, 1}, "rank " + std::to_string(each.rank.value) +
                                          ": its outputs of step " + std::to_string(schedule_id) +
                                          " are no tendon.v1.StepOutputs of it");
    }
    if (counts) meter_.rank_said(each.rank.value, parsed.step_ns());
    if (!of_first) of_first = std::move(parsed);
  }
  if (const auto accepted = scheduler_.accept(*of_first); !accepted.has_value()) {
    replace({&outputs.front().rank, 1}, "rank " + std::to_string(outputs.front().rank.value) +
                                            ": " + accepted.error().message());
  }
}

int Engine::end() {
  if (processes_) {
    processes_->start_no_more();
    // Kills workers that have not joined: they would report that nothing listens.
    for (const tendon::WorkerStatus& worker : controller_->status().workers) {
      if (worker.state == tendon::WorkerStatus::State::gone) processes_->kill(worker.rank);
    }
  }
  scheduler_.fail_all({.code = "stopping", .message = "the engine stops"});
  tell_front();
  tell_status();
  // This also ends the thread that forms a roster.
  const auto stopped = controller_->stop("the engine stops", tendon::Deadline(kStopPatience));
  if (!stopped.has_value()) std::cerr << "engine_controller: " << stopped.error().detail << "\n";
  if (forming_.valid()) forming_.wait();
  if (processes_) processes_->end(Clock::now() + kStopPatience);
  front_.reset();
  return state_ == State::failed ? 1 : 0;
}

}  // namespace engine
