// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "core/fork_guard.hpp"

namespace tendon::v0::detail {

/// A descriptor with one owner. The fork handler closes it in a child, where every object that
/// still names it holds none: its number may belong to another one by then.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd), process_(process_number()) {
    if (fd_ >= 0) close_in_child(fd_);
  }
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), process_(other.process_) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      process_ = other.process_;
    }
    return *this;
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return process_ == process_number() ? fd_ : -1; }
  explicit operator bool() const noexcept { return get() >= 0; }

  void reset() noexcept {
    const int fd = std::exchange(fd_, -1);
    if (fd < 0 || process_ != process_number()) return;
    forget_in_child(fd);
    close(fd);
  }

 private:
  int fd_ = -1;
  std::uint32_t process_ = 0;
};

}  // namespace tendon::v0::detail
