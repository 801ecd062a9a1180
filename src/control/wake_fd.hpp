// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <tendon/core/error.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// Ends the wait of a thread that polls sockets of ZeroMQ.
class WakeFd {
 public:
  [[nodiscard]] static Result<WakeFd> make() {
    OwnedFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!fd) return system_error("control.wake", "eventfd", errno);
    return WakeFd(std::move(fd));
  }
  [[nodiscard]] int get() const noexcept { return fd_.get(); }
  void wake() const noexcept {
    const std::uint64_t one = 1;
    (void)!write(fd_.get(), &one, sizeof one);  // full: it is readable already
  }
  /// By the thread that was woken, before it looks at what was changed.
  void clear() const noexcept {
    std::uint64_t count = 0;
    (void)!read(fd_.get(), &count, sizeof count);
  }

 private:
  explicit WakeFd(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
};

}  // namespace tendon::v0::detail
