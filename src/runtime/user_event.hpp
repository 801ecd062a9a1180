// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// A descriptor that becomes readable when a result can be collected. A signal is a system call
/// only once the user has asked for the descriptor; earlier signals are not lost. In a forked
/// child, which shares the descriptor with its parent, signals do nothing.
///
/// Owns:    an eventfd.
/// Threads: thread-safe.
/// Errors:  open() returns false with errno.
/// Blocks:  never.
/// Cost:    a system call for each signal, or two loads.
class UserEvent {
 public:
  [[nodiscard]] bool open() {
    fd_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return static_cast<bool>(fd_);
  }
  void signal() const noexcept {
    if (!fd_) return;
    if (!wanted_.load()) {
      held_back_.store(true);
      // The user may ask in between; the thread that takes held_back_ then signals.
      if (!wanted_.load() || !held_back_.exchange(false)) return;
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
  }
  [[nodiscard]] int fd() const noexcept {
    if (!wanted_.exchange(true) && held_back_.exchange(false)) signal();
    return fd_.get();
  }
  /// Consumes the signals. False: there was none.
  bool take() const noexcept {
    std::uint64_t count = 0;
    return ::read(fd(), &count, sizeof count) > 0;
  }

 private:
  OwnedFd fd_;
  mutable std::atomic<bool> wanted_{false};
  mutable std::atomic<bool> held_back_{false};
};

}  // namespace tendon::v0::detail
