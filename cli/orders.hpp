// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/fd.hpp"

namespace tendon::cli {

/// A signal, and its meaning.
struct Order {
  enum class Kind : std::uint8_t {
    other,   ///< is passed on, and changes nothing
    end,     ///< the first that asks for the end
    repeat,  ///< repeats that request
    end_now,
  };
  int signal_number;
  Kind kind;
};

/// Reads what the outer process of `tendon launch` passes on: one byte for each signal that it got.
/// The end of the pipe means that the outer process is dead.
///
/// Owns:    the reading end of the pipe.
/// Threads: one.
/// Errors:  none; a pipe that cannot be read has ended.
/// Blocks:  take(): no.
/// Cost:    a pipe.
class Orders {
 public:
  explicit Orders(detail::OwnedFd pipe) : pipe_(std::move(pipe)) {}

  /// Takes the next signal, if one has arrived.
  [[nodiscard]] std::optional<Order> take();
  /// False after the outer process has died.
  [[nodiscard]] bool has_giver() const noexcept { return static_cast<bool>(pipe_); }
  /// The first signal that asked for the end, 0 if none has.
  [[nodiscard]] int stop_signal() const noexcept { return stop_signal_; }
  /// For poll(); -1 after the outer process has died.
  [[nodiscard]] int fd() const noexcept { return pipe_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  /// Whether the signal asks for the end.
  [[nodiscard]] static bool is_stop(int signal_number);

  detail::OwnedFd pipe_;
  int stop_signal_ = 0;
  Clock::time_point stopped_at_;  ///< when that signal arrived
};

}  // namespace tendon::cli
