// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/rank.hpp>
#include <tendon/session/identity.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// What a controller knows of one worker: its last heartbeat.
struct WorkerStatus {
  GlobalRank rank = {};
  PeerIdentity identity = {};
  /// The step at work, 0 when there is none.
  std::uint64_t schedule_id = 0;
  /// "in all_reduce #7 on group "tensor", waiting for rank 2 (1.2 s)"; empty when no collective
  /// waits.
  std::string waiting = {};
  /// What Worker::set_load() said last.
  double load = 0;
  /// WorkerOptions::free_blocks.
  std::uint64_t free_blocks = 0;
  /// Steps of this roster that it has taken.
  std::uint64_t applied_inputs = 0;
  /// Since the worker last took or gave a step, or ended a collective, while a step is in flight: a
  /// program that started it may kill one that hangs. Those that wait for it in a collective say
  /// so in `waiting`. By its heartbeats.
  std::chrono::nanoseconds stalled{0};
  /// Since the heartbeat came.
  std::chrono::nanoseconds age{0};
};

/// What a controller does.
enum class RosterState : std::uint8_t {
  gathering,  ///< not all workers have come
  forming,    ///< groups and flows are being made
  running,
  draining,  ///< no further step is accepted
  closed,    ///< a worker was lost or failed: rebuild()
  failed,    ///< kMaxRosterAttempts were in vain
  stopped,
};

[[nodiscard]] constexpr std::string_view to_string(RosterState state) {
  switch (state) {
    case RosterState::gathering:
      return "gathering";
    case RosterState::forming:
      return "forming";
    case RosterState::running:
      return "running";
    case RosterState::draining:
      return "draining";
    case RosterState::closed:
      return "closed";
    case RosterState::failed:
      return "failed";
    case RosterState::stopped:
      return "stopped";
  }
  return "unknown";
}

struct ControllerStatus {
  RosterState state = RosterState::gathering;
  std::uint64_t roster = 0;  ///< 0 before the first
  /// Why it was closed.
  std::string reason = {};
  std::vector<std::uint64_t> steps_in_flight = {};
  /// Those that are there, by rank.
  std::vector<WorkerStatus> workers = {};
};

/// What has been repaired, and what was dropped.
struct FlowStats {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t doubled = 0;       ///< came twice, dropped the second time
  std::uint64_t parked = 0;        ///< came before an earlier one did
  std::uint64_t resent = 0;        ///< sent again on a worker pipe
  std::uint64_t refused = 0;       ///< of another run, roster or sender, or malformed
  std::uint64_t void_outputs = 0;  ///< of steps of a roster that was closed
};

}  // namespace v0
}  // namespace tendon
