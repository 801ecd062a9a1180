// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tendon/control/step.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail {

struct KeptBody;

/// A call that broadcasts a step, from one attempt to the next.
struct StepCall {
  const StepInputs& inputs;
  bool has_turn = false;                         ///< it has joined the line
  std::shared_ptr<const KeptBody> tensors = {};  ///< their copy, which all attempts use
};

/// Calls that broadcast steps, in the order in which they began. Steps therefore rise in it,
/// however long one call copies its tensors or waits for room.
///
/// Owns:    the ids of the calls that have not ended, and the last one that was sent.
/// Threads: one at a time.
/// Errors:  join(): invalid_argument.
/// Blocks:  never.
/// Cost:    a look at the calls that wait.
class StepTurns {
 public:
  /// Joins the end of the line; leave() ends it.
  [[nodiscard]] Result<void> join(std::uint64_t schedule_id) {
    const std::uint64_t before = std::max(last_given_, line_.empty() ? 0 : line_.back());
    if (schedule_id <= before) {
      return Error{ErrorCode::invalid_argument, "control.broadcast",
                   "schedule_id " + std::to_string(schedule_id) + " is not above " +
                       std::to_string(before) +
                       (line_.empty() ? ", that of an earlier step"
                                      : ", that of a call which began before")};
    }
    line_.push_back(schedule_id);
    return {};
  }
  [[nodiscard]] bool is_empty() const noexcept { return line_.empty(); }
  /// The call whose turn it is. Precondition: one has joined.
  [[nodiscard]] std::uint64_t first() const { return line_.front(); }
  /// Notes that its step was sent.
  void given(std::uint64_t schedule_id) { last_given_ = schedule_id; }
  void leave(std::uint64_t schedule_id) { std::erase(line_, schedule_id); }

 private:
  std::deque<std::uint64_t> line_;  // rising
  std::uint64_t last_given_ = 0;
};

}  // namespace tendon::v0::detail
