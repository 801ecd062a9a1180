// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace tendon::v0::detail {

/// The right to receive from a subscriber, which one thread or completion has at a time. A thread
/// that drops what the last receiver kept borrows it for a moment.
///
///   free -> taken     take(), by a receiver
///        -> borrowed  borrow(), for a few instructions
///   taken, borrowed -> free   leave()
///
/// Owns:    a word.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  take(), while it is borrowed.
/// Cost:    an atomic instruction each.
class ReceiverSeat {
 public:
  /// False: another receiver has it.
  [[nodiscard]] bool take() noexcept {
    for (;;) {
      State found = State::free;
      if (state_.compare_exchange_strong(found, State::taken)) return true;
      if (found == State::taken) return false;
      std::this_thread::yield();
    }
  }
  /// False: a receiver has it, or another thread has borrowed it.
  [[nodiscard]] bool borrow() noexcept {
    State found = State::free;
    return state_.compare_exchange_strong(found, State::borrowed);
  }
  void leave() noexcept { state_.store(State::free); }

 private:
  enum class State : std::uint8_t { free, taken, borrowed };
  std::atomic<State> state_{State::free};
};

}  // namespace tendon::v0::detail
