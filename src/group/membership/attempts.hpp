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

/// Attempts to reach a member at its addresses, in turn and again: what each address said the last
/// time, and how long a round has.
///
/// Owns:    addresses and errors.
/// Threads: none; a local variable.
/// Errors:  makes one of all.
/// Blocks:  never.
/// Cost:    a few strings.
class Attempts {
 public:
  void note(const std::string& address, Error error);
  /// The member is at these addresses now: what others said counts no more.
  void keep_only(std::span<const std::string> addresses);
  [[nodiscard]] bool empty() const noexcept { return tried_.empty(); }

  /// For one address of several, so that a silent one leaves time to the next.
  [[nodiscard]] std::chrono::milliseconds piece() const noexcept { return piece_; }
  /// Before the next round: the process that is expected there may not listen yet.
  [[nodiscard]] std::chrono::milliseconds pause() const noexcept { return pause_; }
  /// Both grow.
  void begin_round();

  /// The error after which further attempts are of no use: an address has an answer to this member
  /// and will have no other, or none of them can have one.
  [[nodiscard]] std::optional<Error> final_answer() const;
  /// `timeout`, with each address and its cause, and `more` behind them.
  [[nodiscard]] Error nobody_answered(std::string_view more) const;

 private:
  [[nodiscard]] std::string causes() const;

  std::vector<Tried> tried_;
  std::chrono::milliseconds piece_{1000};
  std::chrono::milliseconds pause_{5};
};

}  // namespace tendon::v0::detail
