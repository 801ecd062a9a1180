// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <tendon/core/result.hpp>

namespace tendon::python {

/// A descriptor that wakes an event loop of Python, made at the first call of fd().
///
/// Owns:    an eventfd.
/// Threads: none of its own: its owner's lock is held.
/// Errors:  system, of fd().
/// Blocks:  never.
/// Cost:    of ring() a system call, once there is a descriptor.
class Bell {
 public:
  Bell() = default;
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  ~Bell() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] Result<int> fd() {
    if (fd_ < 0) fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd_ < 0) return system_error("events.fileno", "eventfd", errno);
    return fd_;
  }
  void ring() const noexcept {
    const std::uint64_t one = 1;
    if (fd_ >= 0) [[maybe_unused]]
      const ssize_t written = ::write(fd_, &one, sizeof one);
  }
  void silence() const noexcept {
    std::uint64_t count = 0;
    if (fd_ >= 0) [[maybe_unused]]
      const ssize_t taken = ::read(fd_, &count, sizeof count);
  }

 private:
  int fd_ = -1;
};

}  // namespace tendon::python
