// SPDX-License-Identifier: Apache-2.0
#include "cli/orders.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace tendon::cli {

bool Orders::is_stop(int signal_number) {
  return signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP ||
         signal_number == SIGQUIT;
}

std::optional<int> Orders::take() {
  while (pipe_) {
    unsigned char byte = 0;
    const ssize_t size = read(pipe_.get(), &byte, 1);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (size <= 0) {
      pipe_.reset();
      return std::nullopt;
    }
    if (!is_stop(byte)) return byte;
    const auto now = std::chrono::steady_clock::now();
    if (stop_count_ == 0) {
      stop_signal_ = byte;
      asked_at_ = now;
    } else if (now - asked_at_ < kOneRequest) {
      continue;
    }
    // Nobody hangs up twice to hurry.
    is_impatient_ = is_impatient_ || (stop_count_ != 0 && byte != SIGHUP);
    ++stop_count_;
    return byte;
  }
  return std::nullopt;
}

}  // namespace tendon::cli
