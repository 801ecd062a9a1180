// SPDX-License-Identifier: Apache-2.0
// Ends an unused link by agreement, so that no pipe is lost that either side is about to open.
// docs/protocol.md, "Retiring".
//
//   state    role       input                                next     action
//   -------  ---------  -----------------------------------  -------  ----------------
//   used     both       a tick finds it unused               idle
//   idle     both       a tick finds it used                 used
//   idle     connector  a tick, unused for kRetireAfter      asked    send `retire`
//   asked    connector  a tick finds it used; on_use()       used
//   asked    connector  unused for kRetireAfter again        asked    send `retire`
//   asked    connector  `retire` arrives, and it is unused   retired  say goodbye, end
//   idle     acceptor   `retire` arrives, and it is unused
//                       for kAgreeAfter                      agreed   send `retire`
//   agreed   acceptor   `retire` arrives, and it is unused   agreed   send `retire`
//   any      acceptor   `retire` arrives, and it is used     used
//   agreed   acceptor   the peer opens a pipe: on_use()      used
//
// A side that uses the link after it sent `retire` has withdrawn its offer; the peer learns that
// from the new pipe. The side that has agreed opens no pipe before then. If the agreement finds the
// connector with a use that has no pipe, it asks again after that use, and is answered again.
#pragma once

#include <chrono>
#include <cstdint>
#include <tendon/session/limits.hpp>

#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The state of one link in its retirement.
///
/// Owns:    nothing.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few words.
class Retirement {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { used, idle, asked, agreed, retired };
  enum class Use : std::uint8_t { used, unused };
  enum class Action : std::uint8_t { nothing, say_retire, end };

  [[nodiscard]] Action on_tick(LinkRole role, Use use, Clock::time_point now) {
    if (state_ == State::agreed || state_ == State::retired) return Action::nothing;
    if (use == Use::used) {
      state_ = State::used;
    } else if (state_ == State::used) {
      state_ = State::idle;
      idle_since_ = now;
    } else if (role == LinkRole::connector && now - idle_since_ >= kRetireAfter) {
      state_ = State::asked;
      idle_since_ = now;
      return Action::say_retire;
    }
    return Action::nothing;
  }
  /// The peer sent `retire`.
  [[nodiscard]] Action on_word(LinkRole role, Use use, Clock::time_point now) {
    if (use == Use::used) {
      state_ = State::used;
    } else if (role == LinkRole::acceptor) {
      if (state_ == State::agreed) return Action::say_retire;
      if (state_ != State::idle || now - idle_since_ < kAgreeAfter) return Action::nothing;
      state_ = State::agreed;
      return Action::say_retire;
    } else if (state_ == State::asked) {
      state_ = State::retired;
      return Action::end;
    }
    return Action::nothing;
  }
  /// A caller is about to open a pipe, or the peer has opened one.
  void on_use() {
    if (state_ != State::retired) state_ = State::used;
  }
  /// True if a caller may open a pipe: not after this side has agreed, until the peer opens one.
  [[nodiscard]] bool may_open() const {
    return state_ != State::agreed && state_ != State::retired;
  }
  [[nodiscard]] State state() const { return state_; }

  /// How long a link without pipes, views and unsent messages is kept.
  static constexpr std::chrono::seconds kRetireAfter{10};
  /// A caller that has found a link opens its pipe within a handshake.
  static constexpr std::chrono::seconds kAgreeAfter = kHandshakeTimeout;

 private:
  State state_ = State::used;
  Clock::time_point idle_since_;
};

}  // namespace tendon::v0::detail
