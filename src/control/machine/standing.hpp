// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <tendon/control/worker_status.hpp>
#include <vector>

#include "control/machine/step_ledger.hpp"
#include "control/machine/worker_seats.hpp"

namespace tendon::v0::detail {

/// The state of a controller's workers in its steps: which owe, and which hold up the others.
///
/// Owns:    nothing: it reads the controller's data.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look at each rank and at those it waits for.
class Standing {
 public:
  using Clock = std::chrono::steady_clock;

  /// `sent`: StepInputs of this roster. `idle_heartbeat`: that of ControllerOptions.
  Standing(const WorkerSeats& seats, const StepLedger& steps, std::uint64_t sent,
           std::chrono::milliseconds idle_heartbeat, Clock::time_point now = Clock::now())
      : seats_(seats), steps_(steps), sent_(sent), idle_heartbeat_(idle_heartbeat), now_(now) {}

  /// The states of all ranks, by rank.
  [[nodiscard]] std::vector<WorkerStatus> statuses() const;
  /// True if it took a step and has not sent its outputs, or has not taken one that was sent.
  [[nodiscard]] bool owes(GlobalRank rank) const;

 private:
  [[nodiscard]] WorkerStatus::State state_of(GlobalRank rank) const;
  /// True if it says that it waits for others, and has not fallen silent since.
  [[nodiscard]] bool waits(const WorkerSeat& seat) const;

  const WorkerSeats& seats_;
  const StepLedger& steps_;
  const std::uint64_t sent_;
  const std::chrono::milliseconds idle_heartbeat_;
  const Clock::time_point now_;
};

}  // namespace tendon::v0::detail
