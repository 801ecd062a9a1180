// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/rank.hpp>
#include <tendon/core/words.hpp>
#include <tendon/session/identity.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// The state of one rank as its controller knows it, from its last heartbeat.
struct WorkerStatus {
  enum class State : std::uint8_t {
    running,     ///< in the roster, and owes nothing
    owes,        ///< took a step and has not sent its outputs, or has not taken one that was sent
    failing,     ///< the roster has ended, and the worker has not said that it is done with it
    rebuilding,  ///< waits for the next roster, or enters it
    gone,        ///< has no worker
  };
  GlobalRank rank = {};
  State state = State::gone;
  /// Also kept after its worker has left.
  PeerIdentity identity = {};
  /// The step at work, 0 when there is none.
  std::uint64_t schedule_id = 0;
  /// "in all_reduce #7 on group "tensor", waiting for rank 2 (1.2 s)"; empty when no collective
  /// waits.
  std::string waiting = {};
  /// The same as ranks of the layout, if they are known.
  std::vector<GlobalRank> waiting_for = {};
  /// The last value of Worker::set_load().
  double load = 0;
  /// WorkerOptions::free_blocks.
  std::uint64_t free_blocks = 0;
  /// Steps of this roster that it has taken.
  std::uint64_t applied_inputs = 0;
  /// The time for which it has held up steps: since it last took one, sent outputs, ended a
  /// collective or waited for others. 0 for a worker that owes nothing, or that still reports a
  /// wait for others. If all workers that owe something wait, it is counted for those for whom they
  /// wait. A program that started this worker may kill it.
  std::chrono::nanoseconds stalled{0};
  /// Time since the heartbeat arrived.
  std::chrono::nanoseconds age{0};
};

TENDON_WORDS(WorkerStatus::State, running, owes, failing, rebuilding, gone);

/// The state of a controller's roster.
enum class RosterState : std::uint8_t {
  gathering,  ///< not all workers have arrived
  forming,    ///< groups and flows are being made
  running,
  draining,  ///< no further step is accepted
  closed,    ///< a worker was lost or failed: rebuild()
  failed,    ///< kMaxRosterAttempts have failed
  stopped,
};

TENDON_WORDS(RosterState, gathering, forming, running, draining, closed, failed, stopped);

struct ControllerStatus {
  RosterState state = RosterState::gathering;
  std::uint64_t roster = 0;  ///< 0 before the first
  /// The reason why it was closed.
  std::string reason = {};
  std::vector<std::uint64_t> steps_in_flight = {};
  /// One entry for each rank, by rank.
  std::vector<WorkerStatus> workers = {};
};

/// Counts of messages that were repaired or dropped.
struct FlowStats {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t doubled = 0;       ///< arrived twice, dropped the second time
  std::uint64_t parked = 0;        ///< arrived before an earlier one did
  std::uint64_t resent = 0;        ///< sent again on a worker pipe
  std::uint64_t refused = 0;       ///< of another run, roster or sender, or malformed
  std::uint64_t void_outputs = 0;  ///< of steps of a roster that was closed
};

}  // namespace v0
}  // namespace tendon
