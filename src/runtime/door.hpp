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

/// The log's words for a connection without a place.
inline constexpr std::string_view kNoPlace =
    "too many connections stand before this listener, or come from one address";

/// Decides which connections may stand before a listener before their handshake is done, and for
/// how long. It does no I/O and reads no clock.
///
///   new      -- enter() --> silent: no whole frame yet        most_silent, the oldest is closed
///   silent   -- answer() -> answered: TLS continues, and the peer is not yet known
///   either   -- hear()  --> in the handshake                  kHandshakesPerListener, answered too
///   each     -- leave() --> a link, refused, hung up, or too late
///
/// Anybody can make TLS answer, so at the limit the connection answered first makes way for a new
/// one. All kinds together: kConnectionsPerSource from one address.
class TENDON_API Door {
 public:
  explicit Door(std::size_t most_silent = kSilentPerListener) : most_silent_(most_silent) {}

  using Time = std::chrono::steady_clock::time_point;
  using Number = std::uint64_t;

  struct Verdict {
    bool stays = false;               ///< false: it has no place, close it without a word
    std::optional<Number> displaced;  ///< has lost its place: close it without a word
  };

  /// Connection `number` has arrived; numbers are never reused.
  [[nodiscard]] Verdict enter(Number number, const std::optional<Source>& source, Time now);
  /// Its ClientHello was answered. It sends a whole frame only after it has proved its identity.
  [[nodiscard]] Verdict answer(Number number, Time now);
  /// A whole frame of it has arrived.
  [[nodiscard]] Verdict hear(Number number, Time now);
  void leave(Number number);
  /// The time by which it must reach the next stage; the past for one without a place.
  [[nodiscard]] Time due(Number number) const;

 private:
  // In the order in which they make way for others.
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
