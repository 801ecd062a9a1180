// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <tendon/core/error.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// Ends the wait of a thread that polls sockets of ZeroMQ.
class WakeFd {
 public:
  [[nodiscard]] static Result<std::unique_ptr<WakeFd>> make() {
    OwnedFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd) return system_error("control.wake", "eventfd", errno);
    return std::unique_ptr<WakeFd>(new WakeFd(std::move(fd)));
  }
  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  void wake() noexcept {
    if (readable_.exchange(true)) return;
    const std::uint64_t one = 1;
    (void)!write(fd_.get(), &one, sizeof one);
  }
  /// By the thread that was woken, before it looks at what was changed.
  void clear() noexcept {
    if (!readable_.load()) return;
    std::uint64_t count = 0;
    (void)!read(fd_.get(), &count, sizeof count);
    // A wake() between the two writes nothing: this thread looks at what it changed all the same.
    readable_.store(false);
  }

 private:
  explicit WakeFd(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
  std::atomic<bool> readable_{false};
};

}  // namespace tendon::v0::detail
