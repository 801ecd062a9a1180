// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Decides by their stamps which samples are due to a subscriber that asked for a rate. On the
/// average not more than that rate are due. One may be half a period early, so that a publisher of
/// just that rate is not halved by its jitter.
///
/// Owns:    the stamp at which the next one is due.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a comparison.
class Pace {
 public:
  /// Every sample is due.
  Pace() = default;
  /// `period_ns` lies between two samples; 0: every sample is due. A peer's request beyond
  /// kLongestPeriod counts as that.
  explicit Pace(std::uint64_t period_ns) : period_(std::min(period_ns, kLongestPeriod)) {}
  /// Continues after a sample of this stamp [ns], which was seen over another link.
  Pace(std::uint64_t period_ns, std::uint64_t seen_stamp) : Pace(period_ns) { took(seen_stamp); }

  [[nodiscard]] bool takes_all() const noexcept { return period_ == 0; }
  [[nodiscard]] bool is_due(std::uint64_t stamp) const noexcept {
    return stamp >= due_ || due_ - stamp <= period_ / 2;
  }
  /// Notes that the sample of this stamp is shown.
  void took(std::uint64_t stamp) noexcept {
    if (period_ == 0) return;
    due_ = std::max(due_, std::min(stamp, ~std::uint64_t{0} - 2 * period_)) + period_;
  }
  /// Makes the next sample due, whatever its stamp.
  void make_due() noexcept { due_ = 0; }

  static constexpr std::uint64_t kLongestPeriod = 1'000'000'000'000;

 private:
  std::uint64_t period_ = 0;  // [ns]
  std::uint64_t due_ = 0;     // stamp [ns]
};

}  // namespace tendon::v0::detail
