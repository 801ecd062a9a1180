// SPDX-License-Identifier: Apache-2.0
#include "runtime/peer_clock.hpp"

#include <algorithm>
#include <ctime>

namespace tendon::v0::detail {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
// A peer may send any time. Beyond a century, sums of these could overflow.
constexpr std::int64_t kLatest = kNsPerSecond * 3'155'760'000;

bool is_a_time(std::int64_t ns) { return ns >= 0 && ns <= kLatest; }

}  // namespace

std::int64_t boot_time_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

void PeerClock::add(const ClockExchange& exchange) noexcept {
  if (!is_a_time(exchange.sent) || !is_a_time(exchange.arrived) || !is_a_time(exchange.returned) ||
      !is_a_time(exchange.received))
    return;
  const std::int64_t away = exchange.received - exchange.sent;
  const std::int64_t there = exchange.returned - exchange.arrived;
  if (there < 0 || away < there) return;
  const std::int64_t there_minus_here =
      (exchange.arrived - exchange.sent) + (exchange.returned - exchange.received);
  kept_[next_] = {there_minus_here / 2, away - there, exchange.received};
  next_ = (next_ + 1) % kExchanges;
}

std::int64_t PeerClock::error_of(const Kept& kept, std::int64_t now) noexcept {
  const std::int64_t age = std::max<std::int64_t>(0, now - kept.at);
  return (kept.round_trip_ns + 1) / 2 + age / 1'000'000 * kDriftPerMillion +
         age % 1'000'000 * kDriftPerMillion / 1'000'000 + 1;
}

std::optional<ClockOffset> PeerClock::offset(std::int64_t now) const noexcept {
  std::optional<ClockOffset> best;
  for (const auto& kept : kept_) {
    if (!kept) continue;
    const std::int64_t error_ns = error_of(*kept, now);
    if (!best || error_ns < best->error_ns) best = ClockOffset{kept->offset_ns, error_ns};
  }
  return best;
}

std::optional<std::chrono::nanoseconds> PeerClock::round_trip() const noexcept {
  std::optional<std::chrono::nanoseconds> least;
  for (const auto& kept : kept_) {
    if (!kept) continue;
    const std::chrono::nanoseconds took(kept->round_trip_ns);
    if (!least || took < *least) least = took;
  }
  return least;
}

}  // namespace tendon::v0::detail
