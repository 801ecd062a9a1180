// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace tendon::v0::detail::cuda {

/// Do the pages of shared memory stay where they are? A GPU reads a registered page that was taken
/// away as it was, so nothing is registered before its maker has said that they stay.
///
///   unasked -> wanted  a copy could use registered memory
///           -> asked   the link has asked the maker
///           -> kept    the maker has answered
///
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    one atomic operation.
class KeptPages {
 public:
  enum class State : std::uint8_t { unasked, wanted, asked, kept };

  explicit KeptPages(State state = State::unasked) noexcept : state_(state) {}

  [[nodiscard]] bool are_kept() const noexcept {
    return state_.load(std::memory_order_acquire) == State::kept;
  }
  void want() noexcept { (void)change(State::unasked, State::wanted); }
  /// True, once, when they are wanted: the caller asks.
  [[nodiscard]] bool ask() noexcept {
    return state_.load(std::memory_order_relaxed) == State::wanted &&
           change(State::wanted, State::asked);
  }
  /// The answer. False: nobody asked, or it was said before.
  [[nodiscard]] bool note_answer() noexcept { return change(State::asked, State::kept); }

 private:
  bool change(State from, State to) noexcept { return state_.compare_exchange_strong(from, to); }

  std::atomic<State> state_;
};

}  // namespace tendon::v0::detail::cuda
