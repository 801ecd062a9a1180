// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace tendon::v0::detail::cuda {

/// Whether the pages of shared memory stay in place. A GPU reads a registered page that was removed
/// with its old contents, so nothing is registered before its maker has said that they stay.
///
///   unstarted -> unasked  they can be asked for
///             -> asked    a copy could use registered memory
///             -> kept     the maker has answered
///
/// Owns:    the function that asks the maker.
/// Threads: thread-safe; start() once.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    one atomic operation.
class KeptPages {
 public:
  enum class State : std::uint8_t { unstarted, unasked, asked, kept };

  explicit KeptPages(State state = State::unstarted) noexcept : state_(state) {}
  /// `ask` asks the maker. It is called once, in the device thread, under no lock.
  void start(std::function<void()> ask) {
    ask_ = std::move(ask);
    state_.store(State::unasked, std::memory_order_release);
  }

  [[nodiscard]] bool are_kept() const noexcept {
    return state_.load(std::memory_order_acquire) == State::kept;
  }
  /// True, once: the caller must let the device thread ask().
  [[nodiscard]] bool want() noexcept {
    return state_.load(std::memory_order_relaxed) == State::unasked &&
           change(State::unasked, State::asked);
  }
  void ask() const { ask_(); }
  /// Notes the answer. False: nobody asked, or it was noted before.
  [[nodiscard]] bool note_answer() noexcept { return change(State::asked, State::kept); }

 private:
  bool change(State from, State to) noexcept { return state_.compare_exchange_strong(from, to); }

  std::atomic<State> state_;
  std::function<void()> ask_;
};

}  // namespace tendon::v0::detail::cuda
