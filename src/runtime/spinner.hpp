// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <tendon/core/deadline.hpp>
#include <tendon/runtime/context.hpp>

#include "runtime/attempt.hpp"
#include "runtime/spin_budget.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The links from which a waiting thread receives.
using WaitedLinks = std::span<Link* const>;

/// Polls, before a thread sleeps, for events that may arrive within microseconds. Under `balanced`
/// it spins as long as recent waits justify (SpinBudget). No more threads spin than there are CPUs.
/// Members of a group that share CPUs yield theirs between looks, under `latency` too.
///
/// Owns:    a counter and the budget.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  spin(), after the last progress: for 4 us or twice the cost of a wake-up, for 1 ms
///          under `latency`, or for 200 us of yielding.
/// Cost:    while the links show their input, a round is a load for each of them; otherwise the
///          attempt, which may be a system call.
class Spinner {
 public:
  Spinner(WaitPolicy policy, Activity& activity);

  /// True: the attempt succeeded. False: it is time to sleep.
  bool spin(WaitedLinks links, Deadline deadline, Attempt attempt, Moves moves);
  /// Null: this policy learns nothing. Otherwise report to it how a wait with sleep ended.
  [[nodiscard]] SpinBudget* budget() noexcept {
    return policy_ == WaitPolicy::balanced ? &budget_ : nullptr;
  }
  /// The number of CPUs that a spinning thread may count on.
  [[nodiscard]] unsigned cpu_count() const noexcept { return cpu_count_; }

 private:
  const WaitPolicy policy_;
  const unsigned cpu_count_;
  Activity& activity_;
  std::atomic<std::uint32_t> spinner_count_{0};
  SpinBudget budget_;
};

}  // namespace tendon::v0::detail
