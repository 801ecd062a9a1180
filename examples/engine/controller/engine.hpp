// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/control/controller.hpp>
#include <tendon/runtime/context.hpp>
#include <vector>

#include "controller/front.hpp"
#include "controller/inbox.hpp"
#include "controller/scheduler.hpp"
#include "controller/step_meter.hpp"
#include "controller/worker_processes.hpp"

namespace engine {

struct EngineOptions {
  SchedulerLimits limits;
  tendon::ParallelLayout layout;
  std::string workers_address;
  std::string front_address;
  WorkerCommands start_workers;
  std::string model;  ///< its name, for the status
  /// The engine kills a worker that it started and that delays steps or a roster for this time.
  std::chrono::seconds hang_timeout{30};
  /// The time for accepted requests to finish after the signal to stop.
  std::chrono::seconds drain_timeout{30};
};

/// The engine's loop: passes the front's requests to the scheduler, its steps to the workers, and
/// their outputs back. It replaces a lost worker, and the worker's requests continue.
///
/// Owns:    all parts of the controller's program.
/// Threads: one thread runs it; it owns the threads of the front and of a forming roster.
/// Errors:  open(): those of the addresses. run() prints the cause of its end on standard error.
/// Blocks:  run(), until a signal or a failure of the engine.
/// Cost:    the sum of its parts.
class Engine {
 public:
  [[nodiscard]] static tendon::Result<std::unique_ptr<Engine>> open(EngineOptions options);
  Engine(EngineOptions options, tendon::Context context);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] std::string workers_address() const { return controller_->address(); }
  [[nodiscard]] std::string front_address() const { return front_->address(); }
  /// Runs until `signal` is not 0, then finishes the accepted requests. Returns the program's exit
  /// code.
  [[nodiscard]] int run(const std::atomic<int>& signal);

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { starting, running, rebuilding, failed };

  [[nodiscard]] static std::string_view name_of(State state);

  void hear_front();
  void hear(FrontMessage message);
  void tell_front();
  void tell_status();
  [[nodiscard]] tendon::Value workers_now() const;
  void form_roster();
  void look_at_forming();
  void look_at_exits();
  void note_identities(const tendon::ControllerStatus& status);
  /// Adds the worker processes that have ended since the last call to exits_.
  void reap();
  void give_steps();
  void take_outputs();
  void take(std::uint64_t schedule_id, const std::vector<tendon::StepOutputs>& outputs);
  [[nodiscard]] std::map<std::uint32_t, std::string> find_lost(
      std::span<const tendon::GlobalRank> killed);
  /// `killed`: the workers that the engine itself has ended, for whose exit it waits.
  /// Logs a death, once for each process.
  void note_death(std::uint32_t rank, std::int64_t pid, std::string what);
  void lose_workers(const tendon::Error& why, std::span<const tendon::GlobalRank> killed = {});
  /// Replaces workers whose outputs are unusable, like dead ones. The engine fails if it did not
  /// start them.
  void replace(std::span<const tendon::GlobalRank> ranks, const std::string& why);
  void fail(const std::string& why);
  [[nodiscard]] int end();

  const EngineOptions options_;
  tendon::Context context_;
  Inbox<FrontEvent> inbox_;
  Scheduler scheduler_;
  StepMeter meter_;
  std::optional<WorkerProcesses> processes_;
  std::optional<tendon::Controller> controller_;
  std::unique_ptr<Front> front_;
  State state_ = State::starting;
  std::future<tendon::Result<void>> forming_;
  std::uint32_t forming_failures_ = 0;  ///< while forming this roster
  std::deque<std::uint64_t> in_flight_;
  std::map<std::uint32_t, tendon::PeerIdentity> identities_;  ///< the latest of each rank
  std::vector<WorkerProcesses::Exit> exits_;                  ///< not yet handled
  std::map<std::uint32_t, std::int64_t> last_deaths_;         ///< processes by rank
  tendon::Value::List deaths_;
  Clock::time_point status_due_{};
  std::optional<Clock::time_point> ends_at_;  ///< set by a signal
};

}  // namespace engine
