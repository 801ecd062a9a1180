// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <tendon/core/result.hpp>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

/// Pauses between attempts. The upper limit doubles each time, and the pause is drawn from its
/// upper half, so that peers refused together do not return together.
class Backoff {
 public:
  struct Bounds {
    std::chrono::microseconds first;
    std::chrono::microseconds longest;
  };
  /// For a place at a listener that is running.
  static constexpr Bounds kAtTheDoor{std::chrono::milliseconds(5), std::chrono::milliseconds(200)};
  /// For a listener that may start later, while a caller waits for it.
  static constexpr Bounds kAbsent{std::chrono::milliseconds(40), std::chrono::seconds(1)};
  /// For a peer that may be absent.
  static constexpr Bounds kPeer{std::chrono::milliseconds(50), std::chrono::seconds(5)};

  /// Draws a seed, so that every process has its own pauses.
  [[nodiscard]] static Result<Backoff> seeded(Bounds bounds) {
    TENDON_TRY(random, random_nonce());
    std::uint64_t seed = 0;
    std::memcpy(&seed, random.data(), sizeof seed);
    return Backoff(seed, bounds);
  }
  Backoff(std::uint64_t seed, Bounds bounds)
      : random_{seed}, limit_(bounds.longest), longest_(bounds.first) {}

  [[nodiscard]] std::chrono::microseconds next() {
    const auto longest = longest_.count();
    longest_ = std::min(longest_ * 2, limit_);
    return std::chrono::microseconds(
        std::uniform_int_distribution<std::int64_t>(longest / 2, longest)(random_));
  }

 private:
  /// SplitMix64 (Steele, Lea, Flood 2014). It has eight bytes of state, because each dialled peer
  /// has one, and neighbouring seeds yield unlike numbers at once.
  struct Random {
    // NOLINTNEXTLINE(readability-identifier-naming): the standard's name.
    using result_type = std::uint64_t;
    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return ~result_type{0}; }
    result_type operator()() {
      result_type mixed = (state += 0x9e3779b97f4a7c15);
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
      return mixed ^ (mixed >> 31);
    }
    result_type state;
  };
  Random random_;
  std::chrono::microseconds limit_;
  std::chrono::microseconds longest_;
};

}  // namespace tendon::v0::detail
