// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Pauses between attempts: each may be twice as long as the one before, from 5 to 200 ms, and is
/// drawn from the upper half of that, so that peers that were turned away together do not come back
/// together.
class Backoff {
 public:
  static constexpr std::chrono::microseconds kFirst{5'000};
  static constexpr std::chrono::microseconds kLongest{200'000};

  explicit Backoff(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] std::chrono::microseconds next() {
    const auto longest = longest_.count();
    longest_ = std::min(longest_ * 2, kLongest);
    return std::chrono::microseconds(
        std::uniform_int_distribution<std::int64_t>(longest / 2, longest)(random_));
  }

 private:
  std::mt19937_64 random_;
  std::chrono::microseconds longest_ = kFirst;
};

}  // namespace tendon::v0::detail
