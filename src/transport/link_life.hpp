// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <tendon/core/error.hpp>

namespace tendon::v0::detail {

/// Whether a link lives, or how it ended and with which error.
///
///   live -> in_order | failed | died
///   in_order -> died, failed -> died: the proof of the peer's death may come later
///
/// Owns:    the error.
/// Threads: end() and agree() under the link's receive lock; the rest from any thread.
/// Errors:  the first one stays.
/// Blocks:  never.
/// Cost:    one load.
class LinkLife {
 public:
  enum class State : std::uint8_t {
    live,
    in_order,  ///< the peer said goodbye
    failed,    ///< without proof that the peer is dead
    died,      ///< the kernel says that the peer's process is gone
  };

  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] bool ended() const noexcept { return state() != State::live; }
  /// What it ended with; null while it is live.
  [[nodiscard]] const Error* error() const noexcept { return ended() ? &*error_ : nullptr; }
  /// Both sides agreed that it ends.
  [[nodiscard]] bool agreed() const noexcept { return agreed_.load(std::memory_order_relaxed); }

  void agree() noexcept { agreed_.store(true, std::memory_order_relaxed); }
  /// Ends it in `state`, which is not live. False when it had ended before: then only a proof of
  /// death is noted.
  bool end(const Error& error, State state) {
    const bool first = !error_.has_value();
    if (first) error_ = error;
    if (first || state == State::died) state_.store(state, std::memory_order_release);
    return first;
  }

 private:
  std::optional<Error> error_;  // written once, before state_ says so
  std::atomic<State> state_{State::live};
  std::atomic<bool> agreed_{false};
};

}  // namespace tendon::v0::detail
