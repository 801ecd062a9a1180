// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/v1/step.pb.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <tendon/control/worker.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor.hpp>

namespace engine {

/// Receives from the stage before in a step, and measures the parts of the step's time, as moves.py
/// does.
///
/// Owns:    shares of the worker's groups in one roster.
/// Threads: one.
/// Errors:  those of the groups; mismatch if the stage before sent data of another step.
/// Blocks:  receive(), until the step's deadline.
/// Cost:    two messages a step.
class StageReceiver {
 public:
  explicit StageReceiver(tendon::WorkerGroups groups) : groups_(std::move(groups)) {}

  void regroup(tendon::WorkerGroups groups) { groups_ = std::move(groups); }
  /// Begins a step.
  void begin(const tendon::v1::StepInputs& step);
  [[nodiscard]] tendon::Result<void> receive(const tendon::Tensor& into);
  /// Ends the step.
  [[nodiscard]] tendon::v1::StepDurations end() const;

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] tendon::Deadline deadline() const;

  tendon::WorkerGroups groups_;
  std::uint64_t schedule_id_ = 0;
  tendon::Deadline until_ = tendon::Deadline::never();
  std::chrono::milliseconds move_timeout_{};
  Clock::time_point begun_;
  Clock::duration wait_{};
  Clock::duration move_{};
  /// The shortest time of a receive, by number of elements.
  std::map<std::int64_t, Clock::duration> least_;
};

}  // namespace engine
