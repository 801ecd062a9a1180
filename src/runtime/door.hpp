// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/session/limits.hpp>
#include <vector>

#include "session/resolve.hpp"

namespace tendon::v0::detail {

/// The log's words for a connection that has no place.
inline constexpr std::string_view kNoPlace =
    "too many connections stand before this listener, or come from one address";

/// Which connections may stand in front of a listener before their handshake is done, and for how
/// long. It does no I/O and reads no clock.
///
///   came     -- enter() --> silent: no whole frame yet        most_silent, the oldest goes
///   silent   -- answer() -> answered: TLS goes on, and it is nobody yet
///   either   -- hear()  --> in the handshake                  kHandshakesPerListener with answered
///   each     -- leave() --> a link, refused, hung up, or too late
///
/// Anybody can get an answer of TLS: at the limit the one that was answered first goes for a
/// further one. All kinds together: kConnectionsPerSource from one address.
class TENDON_API Door {
 public:
  explicit Door(std::size_t most_silent = kSilentPerListener) : most_silent_(most_silent) {}

  using Time = std::chrono::steady_clock::time_point;
  using Number = std::uint64_t;

  struct Verdict {
    bool stays = false;               ///< false: it has no place, close it without a word
    std::optional<Number> displaced;  ///< has no place any more: close it without a word
  };

  /// Connection `number` came; numbers are never used again.
  [[nodiscard]] Verdict enter(Number number, const std::optional<Source>& source, Time now);
  /// Its ClientHello was answered. A whole frame is what it says once it has proved who it is.
  [[nodiscard]] Verdict answer(Number number, Time now);
  /// A whole frame of it came.
  [[nodiscard]] Verdict hear(Number number, Time now);
  void leave(Number number);
  /// When it must be further than it is; the past for one that has no place.
  [[nodiscard]] Time due(Number number) const;

 private:
  // In the order in which they go for others.
  enum class Stage : std::uint8_t { answered, handshake, silent };
  struct Place {
    Number number;
    std::optional<Source> source;  // nothing: exempt
    Stage stage;
    Time since;
    Time last_heard;
  };
  template <class F>
  [[nodiscard]] std::size_t count(F condition) const;
  Verdict go_on(Number number, Stage stage, Time now);
  Number displace(std::vector<Place>::iterator place);

  std::size_t most_silent_;
  std::vector<Place> places_;  // in the order of enter()
};

}  // namespace tendon::v0::detail
