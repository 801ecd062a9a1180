// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/control/worker_status.hpp>
#include <tendon/core/rank.hpp>
#include <utility>
#include <vector>

#include "control/flows/resending.hpp"

namespace tendon::v0::detail {

/// The state of a rank's worker.
///
///   empty --Join--> waiting --Rebuild sent--> forming --Ready--> ready
///                      ^                         |                 |
///                      +------- StepFailed ------+-- (failing) <---+ roster closed
///   any --pipe ended--> empty
enum class SeatState : std::uint8_t {
  empty,
  waiting,  ///< for the next roster; it holds nothing of an earlier one
  forming,
  ready,
  failing,  ///< the roster was closed, and it has not said that it freed everything
};

/// The place of one rank at the controller.
struct WorkerSeat {
  SeatState state = SeatState::empty;
  bool has_tensor_pipe = false;  // in this roster; else the worker pipe carries tensors
  std::uint64_t incarnation = 0;
  std::string public_key = {};  // CURVE's, for its next roster
  WorkerStatus heard = {};      // by the last heartbeat
  std::chrono::steady_clock::time_point heard_at = {};
  std::uint64_t progress = 0;  // steps taken and completed, collectives ended
  /// The time when it last made progress, or owed nothing and received a step.
  std::chrono::steady_clock::time_point progress_at = {};
  /// The same, or the time when it last said that it waits for others.
  std::chrono::steady_clock::time_point busy_since = {};
  /// Set while a roster is formed and it has not replied since then.
  std::optional<std::chrono::steady_clock::time_point> asked_at = {};
  std::uint64_t in_roster = 0;  // the last that it entered, by its heartbeats
  /// Inputs that it has taken, by its words and its outputs. An output may overtake a request to
  /// send inputs again: heard.applied_inputs, from words alone, decides which are kept for that.
  std::uint64_t taken_inputs = 0;
  v1::Ready ready = {};
  std::uint64_t ping = 0;          // the last one that was answered
  std::uint64_t cancelled_id = 0;  // the last Cancel that was acknowledged
  StepFlow outputs = {};
  StepFlow microbatches = {};

  void begin_work(std::chrono::steady_clock::time_point now) { progress_at = busy_since = now; }
  /// Forgets its words about its steps: a roster ends, or begins.
  void forget_steps(std::chrono::steady_clock::time_point now) {
    heard.schedule_id = 0;
    heard.waiting.clear();
    heard.waiting_for.clear();
    heard.applied_inputs = 0;
    taken_inputs = 0;
    outputs = {};
    microbatches = {};
    begin_work(now);
  }
  [[nodiscard]] StepFlow& flow(v1::Flow which) {
    return which == v1::FLOW_STEP_OUTPUTS ? outputs : microbatches;
  }
};

/// "rank 2 (its worker)".
[[nodiscard]] inline std::string name_of(const WorkerSeat& seat) {
  return "rank " + std::to_string(seat.heard.rank.value) + " (" + seat.heard.identity.to_string() +
         ")";
}

/// All places of a layout.
///
/// Owns:    the words of their workers.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look at each rank.
class WorkerSeats {
 public:
  explicit WorkerSeats(std::uint32_t world_size) : seats_(world_size) {
    for (std::uint32_t rank = 0; rank < world_size; ++rank) seats_[rank].heard.rank = {rank};
  }

  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(seats_.size());
  }
  [[nodiscard]] WorkerSeat& at(GlobalRank rank) { return seats_[rank.value]; }
  [[nodiscard]] const WorkerSeat& at(GlobalRank rank) const { return seats_[rank.value]; }
  /// The seats in this state, by rank.
  [[nodiscard]] std::vector<GlobalRank> in(SeatState state) const {
    return ranks_of([state](const WorkerSeat& seat) { return seat.state == state; });
  }
  /// The seats that have a worker, by rank.
  [[nodiscard]] std::vector<GlobalRank> taken() const {
    return ranks_of([](const WorkerSeat& seat) { return seat.state != SeatState::empty; });
  }
  [[nodiscard]] bool all(SeatState state) const { return in(state).size() == seats_.size(); }
  /// Empties a place; only the name of its worker stays known.
  void vacate(GlobalRank rank) {
    WorkerSeat& seat = seats_[rank.value];
    WorkerStatus known{.rank = rank, .identity = std::move(seat.heard.identity)};
    seat = WorkerSeat{};
    seat.heard = std::move(known);
  }
  /// The keys of CURVE that the workers sent, by rank.
  [[nodiscard]] std::vector<std::string> public_keys() const {
    std::vector<std::string> keys;
    keys.reserve(seats_.size());
    for (const WorkerSeat& seat : seats_) keys.push_back(seat.public_key);
    return keys;
  }
  /// The ranks that have not taken the inputs up to this number.
  [[nodiscard]] std::vector<GlobalRank> behind(std::uint64_t sequence) const {
    return ranks_of([=](const WorkerSeat& seat) { return seat.taken_inputs < sequence; });
  }
  /// The number of the last inputs that all workers have applied.
  [[nodiscard]] std::uint64_t applied_by_all() const {
    std::uint64_t lowest = UINT64_MAX;
    for (const WorkerSeat& seat : seats_) lowest = std::min(lowest, seat.heard.applied_inputs);
    return lowest;
  }

 private:
  template <class Is>
  [[nodiscard]] std::vector<GlobalRank> ranks_of(Is is) const {
    std::vector<GlobalRank> ranks;
    for (std::uint32_t rank = 0; rank < size(); ++rank)
      if (is(seats_[rank])) ranks.push_back({rank});
    return ranks;
  }

  std::vector<WorkerSeat> seats_;
};

}  // namespace tendon::v0::detail
