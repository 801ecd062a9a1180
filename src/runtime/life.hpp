// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "core/fork_guard.hpp"

namespace tendon::v0::detail {

/// How far a Context has advanced towards its end, and whether this process is a forked child, in
/// which the Context is unusable.
class Life {
 public:
  enum class State : std::uint8_t {
    open,
    closing,   ///< close() sends the remaining messages; calls continue
    closed,    ///< every call of a handle returns context_closed
    stopping,  ///< the service thread ends
  };

  [[nodiscard]] bool is_past(State state) const noexcept {
    return state_.load(std::memory_order_acquire) > state;
  }
  [[nodiscard]] bool closed() const noexcept { return is_past(State::closing); }
  [[nodiscard]] bool stopping() const noexcept { return is_past(State::closed); }
  [[nodiscard]] bool forked() const noexcept { return process_ != process_number(); }
  [[nodiscard]] bool unusable() const noexcept { return closed() || forked(); }

  /// True for the one caller that closes the Context.
  [[nodiscard]] bool begin_closing() noexcept {
    State expected = State::open;
    return state_.compare_exchange_strong(expected, State::closing);
  }
  void advance(State state) noexcept { state_.store(state); }

 private:
  const std::uint32_t process_ = process_number();
  std::atomic<State> state_{State::open};
};

}  // namespace tendon::v0::detail
