// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// How long the next wait spins under `balanced`: long while what this Context waits for usually
/// comes soon, else a moment.
///
/// It learns from how long *waits* took, also those that ended in sleep. What a spin of a moment
/// hits says little: an answer that takes 13 us would never be found awake, and each of two peers
/// that sleep makes the other wait for its own waking.
///
///     confidence   < 0  ... 0 ... kConfident ... kMost     soon(): +1, late(): -2, down to 0;
///                brief brief brief | ------ long ------    lost_cpu(): -penalty
///
/// Where others want the CPUs too, a spin uses up its process's share of them and then loses its
/// CPU for a time slice; a thread that sleeps is woken before them. After such a loss many waits
/// are brief, after each further one twice as many, until as many long spins have ended well.
/// Where one wait in a hundred has a loss, so that the 99th percentile is a time slice, brief is
/// too long: the next waits rest(), they sleep at once, twice as many each time.
///
/// Owns:    five counters.
/// Threads: thread-safe; an update that races with another may be lost.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a load to ask, a load and a store to tell.
class SpinBudget {
 public:
  using Duration = std::chrono::microseconds;

  /// `wake_up` is what sleeping and being woken costs.
  explicit SpinBudget(Duration wake_up) : wake_up_(wake_up) {}

  /// To be asked once at the beginning of a wait. True: it is one of those that sleep at once.
  [[nodiscard]] bool rests();
  /// Time to spin without anything that moves, in a wait that does not rest.
  [[nodiscard]] Duration now() const;
  /// Is that long enough to share the CPU meanwhile?
  [[nodiscard]] bool is_long() const;
  /// A spin was enough.
  void spun() { soon(); }
  /// The spin was not, and what the thread slept for came that long after it.
  void slept(std::chrono::steady_clock::duration after_spin);
  /// It did not come at all.
  void missed() { late(); }
  /// While it spun, the thread was without its CPU for kLost or longer.
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
  std::atomic<std::int32_t> rest_{0};                // waits that are left to sleep at once
  std::atomic<std::int32_t> next_rest_{kShortestRest};
};

}  // namespace tendon::v0::detail
