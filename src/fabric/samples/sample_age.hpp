// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "fabric/samples/sample_header.hpp"
#include "runtime/peer_clock.hpp"

namespace tendon::v0::detail {

/// The greatest possible age of a sample at `now` [ns, boot_time_ns()]: the uncertainty of the
/// publisher's clock counts as age. Empty if that clock is unknown, or the stamp is impossible.
[[nodiscard]] inline std::optional<std::chrono::nanoseconds> age_at_most(
    const SampleHeader& header, const std::optional<ClockOffset>& publisher, std::int64_t now) {
  // A stranger wrote the stamp: beyond a century it is used in no sum.
  constexpr std::uint64_t kLatest = 3'155'760'000'000'000'000;
  if (!publisher || header.stamp > kLatest) return std::nullopt;
  const std::int64_t there = now + publisher->offset_ns;
  const std::int64_t age = there - static_cast<std::int64_t>(header.stamp) + publisher->error_ns +
                           std::int64_t{header.stamp_error};
  return std::chrono::nanoseconds(std::max<std::int64_t>(0, age));
}

}  // namespace tendon::v0::detail
