// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// Whether this side of a channel may send, and the reason if not.
///
///   open -> finished  by finish(): this side has said its end
///        -> closed    by close(): the peer closed both directions in order
///        -> ended     by end(): the channel or its link has failed
///
/// The first reason stays.
///
/// Owns:    the reason.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never for long.
/// Cost:    may_send(): one load.
class SendingLife {
 public:
  enum class State : std::uint8_t { open, finished, closed, ended };

  [[nodiscard]] bool may_send() const noexcept { return state() == State::open; }
  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// `why` is the error of later sends.
  void finish(Error why) { leave(State::finished, std::move(why)); }
  void close(Error why) { leave(State::closed, std::move(why)); }
  void end(Error why) { leave(State::ended, std::move(why)); }
  /// Precondition: not open.
  [[nodiscard]] Error error() const {
    const Lock lock(mutex_);
    return *error_;
  }

 private:
  void leave(State next, Error why) {
    const Lock lock(mutex_);
    if (error_) return;
    error_ = std::move(why);
    state_.store(next, std::memory_order_release);
  }

  mutable Mutex mutex_;
  std::atomic<State> state_{State::open};  // changed under the lock
  std::optional<Error> error_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
