// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Decides when a channel that its publisher broke is opened again: after pauses that double from
/// kFirst to kLongest, and after kWorn once kMost breaks lie within kWithin. A publisher of another
/// version may break every channel, and each one costs both sides.
///
/// Owns:    counters.
/// Threads: none of its own. It reads no clock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few comparisons.
class BreakPace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Next {
    std::chrono::milliseconds pause;
    bool tell = false;      ///< reports it to the program: once, until the channel has lasted
    bool is_first = false;  ///< within kWithin
  };

  [[nodiscard]] Next on_break(Time now) noexcept {
    if (count_ == 0 || now - first_ > kWithin) *this = BreakPace(now);
    ++count_;
    if (count_ >= kMost) return {kWorn, count_ == kMost, false};
    const std::chrono::milliseconds pause = pause_;
    pause_ = std::min(2 * pause_, kLongest);
    return {pause, false, count_ == 1};
  }

  static constexpr std::chrono::milliseconds kFirst{100};
  static constexpr std::chrono::milliseconds kLongest{5000};
  static constexpr std::chrono::milliseconds kWorn{30000};
  static constexpr std::chrono::seconds kWithin{60};
  static constexpr int kMost = 3;

  BreakPace() = default;

 private:
  explicit BreakPace(Time now) : first_(now) {}

  Time first_{};
  std::chrono::milliseconds pause_ = kFirst;
  int count_ = 0;
};

}  // namespace tendon::v0::detail
