// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "fabric/samples/sample_header.hpp"
#include "runtime/peer_clock.hpp"

namespace tendon::v0::detail {

/// How old a sample is at `now` [ns, boot_time_ns()], at the most: what is uncertain about the
/// publisher's clock counts as age. Nothing where that clock is unknown, or no clock can say this.
[[nodiscard]] inline std::optional<std::chrono::nanoseconds> age_at_most(
    const SampleHeader& header, const std::optional<ClockOffset>& publisher, std::int64_t now) {
  // A stranger wrote the stamp: beyond a century no sum is made with it.
  constexpr std::uint64_t kLatest = 3'155'760'000'000'000'000;
  if (!publisher || header.stamp > kLatest) return std::nullopt;
  const std::int64_t there = now + publisher->offset_ns;
  const std::int64_t age = there - static_cast<std::int64_t>(header.stamp) + publisher->error_ns +
                           std::int64_t{header.stamp_error};
  return std::chrono::nanoseconds(std::max<std::int64_t>(0, age));
}

}  // namespace tendon::v0::detail
