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
///     confidence 0 ... kConfident ... kMost     soon(): +1, late(): -2
///                 brief | ------ long ------
///
/// Owns:    one counter.
/// Threads: thread-safe; an update that races with another may be lost.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a load to ask, a load and a store to tell.
class SpinBudget {
 public:
  using Duration = std::chrono::microseconds;

  /// `wake_up` is what sleeping and being woken costs.
  explicit SpinBudget(Duration wake_up) : wake_up_(wake_up) {}

  /// Time to spin without anything that moves.
  [[nodiscard]] Duration now() const;
  /// A spin was enough.
  void spun() { soon(); }
  /// The spin was not, and what the thread slept for came that long after it.
  void slept(std::chrono::steady_clock::duration after_spin);
  /// It did not come at all.
  void missed() { late(); }

 private:
  void soon();
  void late();

  const Duration wake_up_;
  std::atomic<std::uint32_t> confidence_{0};
};

}  // namespace tendon::v0::detail
