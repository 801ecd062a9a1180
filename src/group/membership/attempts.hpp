// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <vector>

#include "runtime/reach.hpp"

namespace tendon::v0::detail {

/// Attempts to reach a member at its addresses, in turn and repeatedly: the last answer of each
/// address, and the duration of a round.
///
/// Owns:    addresses and errors.
/// Threads: none; a local variable.
/// Errors:  makes one of all.
/// Blocks:  never.
/// Cost:    a few strings.
class Attempts {
 public:
  void note(const std::string& address, Error error);
  /// Replaces the addresses: answers of others no longer count.
  void keep_only(std::span<const std::string> addresses);
  [[nodiscard]] bool empty() const noexcept { return tried_.empty(); }

  /// The time for one address of several, so that a silent one leaves time to the next.
  [[nodiscard]] std::chrono::milliseconds piece() const noexcept { return piece_; }
  /// The pause before the next round: the expected process may not listen yet.
  [[nodiscard]] std::chrono::milliseconds pause() const noexcept { return pause_; }
  /// Begins a round and lengthens both times.
  void begin_round();

  /// The error after which further attempts are useless: an address has answered this member for
  /// good, or none of them can answer.
  [[nodiscard]] std::optional<Error> final_answer() const;
  /// Makes a `timeout` with each address and its cause, then `more`.
  [[nodiscard]] Error nobody_answered(std::string_view more) const;

 private:
  [[nodiscard]] std::string causes() const;

  std::vector<Tried> tried_;
  std::chrono::milliseconds piece_{1000};
  std::chrono::milliseconds pause_{5};
};

}  // namespace tendon::v0::detail
