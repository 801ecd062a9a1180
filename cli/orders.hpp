// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "core/fd.hpp"

namespace tendon::cli {

/// What the outer process of `tendon launch` passes on: one byte for each signal that it got. The
/// end of the pipe is its death.
///
/// Owns:    the reading end of the pipe.
/// Threads: one.
/// Errors:  none; a pipe that cannot be read has ended.
/// Blocks:  take(): no.
/// Cost:    a pipe.
class Orders {
 public:
  explicit Orders(detail::OwnedFd pipe) : pipe_(std::move(pipe)) {}

  /// The next signal, if one has come. Of those that ask for the end and come within kOneRequest
  /// only the first.
  [[nodiscard]] std::optional<int> take();
  /// False once the outer process is gone.
  [[nodiscard]] bool has_giver() const noexcept { return static_cast<bool>(pipe_); }
  /// The first signal that asked for the end, 0 if none has.
  [[nodiscard]] int stop_signal() const noexcept { return stop_signal_; }
  /// How often the end was asked for.
  [[nodiscard]] int stop_count() const noexcept { return stop_count_; }
  /// A second one asked for it to be now.
  [[nodiscard]] bool is_impatient() const noexcept { return is_impatient_; }
  /// One request may come as several signals: timeout(1) signals its child and then its group, a
  /// shell that ends hangs up its jobs, and then the kernel does.
  static constexpr std::chrono::milliseconds kOneRequest{500};
  /// For poll(); -1 without a giver.
  [[nodiscard]] int fd() const noexcept { return pipe_.get(); }

  /// Signals that ask for the end; the others are passed on and change nothing.
  [[nodiscard]] static bool is_stop(int signal_number);

 private:
  detail::OwnedFd pipe_;
  int stop_signal_ = 0;
  int stop_count_ = 0;
  bool is_impatient_ = false;
  std::chrono::steady_clock::time_point asked_at_;  // first
};

}  // namespace tendon::cli
