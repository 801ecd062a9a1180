// SPDX-License-Identifier: Apache-2.0
#include "control/machine/standing.hpp"

#include <algorithm>

namespace tendon::v0::detail {
namespace {

// A living process, however busy its host is, sends one of so many.
constexpr int kHeartbeatsMissed = 3;

}  // namespace

bool Standing::owes(GlobalRank rank) const {
  const WorkerSeat& seat = seats_.at(rank);
  if (seat.state != SeatState::ready) return false;
  if (seat.taken_inputs < sent_) return true;
  const std::uint64_t at_work = seat.heard.schedule_id;
  // Its outputs may be here before the heartbeat that says so.
  return at_work != 0 && !steps_.has_outputs(at_work, rank);
}

bool Standing::waits(const WorkerSeat& seat) const {
  if (seat.heard.waiting.empty()) return false;
  // A process that was stopped while it waited sends nothing any more.
  const auto silent = now_ - seat.heard_at;
  return silent < kHeartbeatsMissed * idle_heartbeat_ || 2 * silent < now_ - seat.progress_at;
}

WorkerStatus::State Standing::state_of(GlobalRank rank) const {
  switch (seats_.at(rank).state) {
    case SeatState::empty:
      return WorkerStatus::State::gone;
    case SeatState::waiting:
    case SeatState::forming:
      return WorkerStatus::State::rebuilding;
    case SeatState::failing:
      return WorkerStatus::State::failing;
    case SeatState::ready:
      break;
  }
  return owes(rank) ? WorkerStatus::State::owes : WorkerStatus::State::running;
}

std::vector<WorkerStatus> Standing::statuses() const {
  std::vector<WorkerStatus> all;
  bool all_wait = true;  // of those that owe
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    const WorkerSeat& seat = seats_.at({rank});
    WorkerStatus& status = all.emplace_back(seat.heard);
    status.state = state_of({rank});
    if (seat.state != SeatState::empty) status.age = now_ - seat.heard_at;
    if (status.state != WorkerStatus::State::owes || waits(seat)) continue;
    status.stalled = now_ - seat.busy_since;
    all_wait = false;
  }
  if (!all_wait) return all;
  // It believes that it is done with its steps, and others wait for its part of one.
  for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (all[rank].state != WorkerStatus::State::owes) continue;
    for (const GlobalRank awaited : all[rank].waiting_for) {
      if (awaited.value >= seats_.size() ||
          all[awaited.value].state != WorkerStatus::State::running)
        continue;
      const std::chrono::nanoseconds since = now_ - seats_.at({rank}).progress_at;
      all[awaited.value].stalled = std::max(all[awaited.value].stalled, since);
    }
  }
  return all;
}

}  // namespace tendon::v0::detail
