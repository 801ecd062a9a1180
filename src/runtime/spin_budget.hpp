// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// How long the next wait spins under `balanced`: long if the awaited events usually arrive soon,
/// else briefly.
///
/// It learns from the length of *waits*, also of those that ended in sleep. The hits of brief spins
/// say little: they would never catch an answer that takes 13 us. Two sleeping peers also make each
/// other wait for their waking.
///
///     confidence   < 0  ... 0 ... kConfident ... kMost     soon(): +1, late(): -2, down to 0;
///                brief brief brief | ------ long ------    lost_cpu(): -penalty
///
/// Where others want the CPUs too, a spin uses up its process's share of them and then loses its
/// CPU for a time slice. A sleeping thread is woken before them. After such a loss many waits are
/// brief, twice as many after each further one, until as many long spins have ended well. If one
/// wait in a hundred has a loss, the 99th percentile is a time slice, and even brief spins are too
/// long. The next waits then rest(): they sleep at once, twice as many each time.
///
/// Owns:    five counters.
/// Threads: thread-safe; an update that races with another may be lost.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a load to query, a load and a store to report.
class SpinBudget {
 public:
  using Duration = std::chrono::microseconds;

  /// `wake_up` is the cost of sleeping and being woken.
  explicit SpinBudget(Duration wake_up) : wake_up_(wake_up) {}

  /// Called once at the start of a wait. True: this wait sleeps at once.
  [[nodiscard]] bool rests();
  /// The time to spin without progress, in a wait that does not rest.
  [[nodiscard]] Duration now() const;
  /// True if that is long enough to share the CPU meanwhile.
  [[nodiscard]] bool is_long() const;
  /// Reports that a spin was enough.
  void spun() { soon(); }
  /// Reports that the spin failed, and how long after it the awaited event arrived.
  void slept(std::chrono::steady_clock::duration after_spin);
  /// Reports that the awaited event never arrived.
  void missed() { late(); }
  /// Reports that the thread lost its CPU for kLost or longer while it spun.
  void lost_cpu();
  static constexpr std::chrono::microseconds kLost{200};

 private:
  void soon();
  void late();

  const Duration wake_up_;
  static constexpr std::int32_t kLeastPenalty = 64;  // a time slice costs as much as many sleeps
  static constexpr std::int32_t kLargestPenalty = 4096;
  static constexpr std::int32_t kShortestRest = 16;
  static constexpr std::int32_t kLongestRest = 1024;
  static constexpr std::int32_t kFrequent = 128;  // waits between two losses
  std::atomic<std::int32_t> confidence_{0};
  std::atomic<std::int32_t> penalty_{kLeastPenalty};
  std::atomic<std::int32_t> since_loss_{kFrequent};  // waits that did not rest
  std::atomic<std::int32_t> rest_{0};                // waits that are still to sleep at once
  std::atomic<std::int32_t> next_rest_{kShortestRest};
};

}  // namespace tendon::v0::detail
