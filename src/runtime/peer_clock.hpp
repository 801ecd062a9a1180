// SPDX-License-Identifier: Apache-2.0
// Estimates how far the clock of a peer differs from this one, from exchanges of kind `clock` on
// their link. The measure is that of NTP (RFC 5905, section 8): the offset is half of the
// difference of both ways, and its error at most half of the round trip. So the exchange with the
// shortest round trip decides.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Nanoseconds of CLOCK_BOOTTIME, which also runs while a machine sleeps.
[[nodiscard]] std::int64_t boot_time_ns() noexcept;

/// One exchange [ns]: sent here, arrived there, sent back there, arrived here.
struct ClockExchange {
  std::int64_t sent = 0;
  std::int64_t arrived = 0;
  std::int64_t returned = 0;
  std::int64_t received = 0;
};

/// The peer's clock minus this one, and the bound on its error [ns].
struct ClockOffset {
  std::int64_t offset_ns = 0;
  std::int64_t error_ns = 0;
};

/// The latest exchanges with one peer. Once the clock was asked, it is asked again every kAskEvery,
/// so that the estimate stays exact.
///
/// Owns:    the last kExchanges exchanges.
/// Threads: none of its own.
/// Errors:  none: an impossible exchange, such as an answer before its question, is ignored.
/// Blocks:  never.
/// Cost:    a few words.
class PeerClock {
 public:
  void note_asked(std::int64_t now) noexcept { asked_at_ = now; }
  [[nodiscard]] bool was_asked() const noexcept { return asked_at_.has_value(); }
  [[nodiscard]] bool is_due(std::int64_t now) const noexcept {
    return asked_at_ && now - *asked_at_ >= kAskEvery.count();
  }
  void add(const ClockExchange& exchange) noexcept;
  /// The offset at `now` [ns of this clock]; nothing before the first exchange.
  [[nodiscard]] std::optional<ClockOffset> offset(std::int64_t now) const noexcept;
  /// The shortest round trip of the kept exchanges.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> round_trip() const noexcept;

  static constexpr std::size_t kExchanges = 8;
  static constexpr std::chrono::nanoseconds kAskEvery = std::chrono::seconds(4);
  /// Two clocks drift apart by at most this.
  static constexpr std::int64_t kDriftPerMillion = 100;

 private:
  struct Kept {
    std::int64_t offset_ns;
    std::int64_t round_trip_ns;
    std::int64_t at;  // on this clock
  };
  [[nodiscard]] static std::int64_t error_of(const Kept& kept, std::int64_t now) noexcept;

  std::array<std::optional<Kept>, kExchanges> kept_;
  std::size_t next_ = 0;
  std::optional<std::int64_t> asked_at_;
};

}  // namespace tendon::v0::detail
