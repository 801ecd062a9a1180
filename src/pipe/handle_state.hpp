// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// The state of the user's handle of a pipe, and of the pipe with it.
///
///   state        supervise()  release()   drop()      close()
///   held         supervised   -           abandoned   closed
///   supervised   -            held        dropped     closed
///   dropped      -            abandoned   -           closed
///   abandoned    -            -           -           closed
///   closed       -            -           -           -
///
/// Owns:    a number.
/// Threads: any.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    one atomic operation; is(): a load.
class HandleState {
 public:
  enum class State : std::uint8_t {
    held,        ///< the program may use it
    supervised,  ///< a server lent it to a handler, and may still have to state a reason
    dropped,     ///< the handler dropped it meanwhile
    abandoned,   ///< queued messages leave, then the end is said
    closed,      ///< the end was said
  };

  [[nodiscard]] State state() const noexcept { return state_.load(); }
  [[nodiscard]] bool is(State state) const noexcept { return this->state() == state; }
  /// True if no further call of the program can follow.
  [[nodiscard]] bool is_over() const noexcept { return state() >= State::abandoned; }

  void supervise() noexcept { (void)move(State::held, State::supervised); }
  /// True: it was dropped meanwhile, and is abandoned now.
  [[nodiscard]] bool release() noexcept {
    return !move(State::supervised, State::held) && move(State::dropped, State::abandoned);
  }
  /// Notes that the handle is dropped. True: it was not supervised, and the pipe is abandoned now.
  [[nodiscard]] bool drop() noexcept {
    return !move(State::supervised, State::dropped) && move(State::held, State::abandoned);
  }
  /// True the first time: the caller must say the end.
  [[nodiscard]] bool close() noexcept { return state_.exchange(State::closed) != State::closed; }

 private:
  bool move(State from, State to) noexcept { return state_.compare_exchange_strong(from, to); }

  std::atomic<State> state_{State::held};
};

}  // namespace tendon::v0::detail
