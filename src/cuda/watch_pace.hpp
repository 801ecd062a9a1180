// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace tendon::v0::detail::cuda {

/// The pause between two looks at events that the GPU has not reached. Most are reached soon, and
/// the others are not worth a core: 20 us for a millisecond, then twice as long each time, up to 1
/// ms.
class WatchPace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Restarts the pace: an event arrived, or another one is watched.
  void begin(TimePoint now) {
    begun_ = now;
    pause_ = kShortest;
  }
  /// The pause after a look that found nothing new.
  [[nodiscard]] std::chrono::microseconds pause(TimePoint now) {
    if (now - begun_ >= kEager) pause_ = std::min(2 * pause_, kLongest);
    return pause_;
  }

 private:
  static constexpr std::chrono::microseconds kShortest{20};
  static constexpr std::chrono::microseconds kLongest{1000};
  static constexpr std::chrono::microseconds kEager{1000};

  TimePoint begun_{};
  std::chrono::microseconds pause_ = kShortest;
};

}  // namespace tendon::v0::detail::cuda
