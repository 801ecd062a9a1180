// SPDX-License-Identifier: Apache-2.0
#include "cli/orders.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace tendon::cli {
namespace {

/// Signals this soon after the first are the same request: timeout(1) and others signal the process
/// and then its group. No user repeats a signal this fast on purpose.
constexpr std::chrono::milliseconds kOneRequest{500};

}  // namespace

bool Orders::is_stop(int signal_number) {
  return signal_number == SIGINT || signal_number == SIGTERM || signal_number == SIGHUP ||
         signal_number == SIGQUIT;
}

std::optional<Order> Orders::take() {
  if (!pipe_) return std::nullopt;
  unsigned char byte = 0;
  const ssize_t size = read(pipe_.get(), &byte, 1);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (size <= 0) {
    pipe_.reset();
    return std::nullopt;
  }
  if (!is_stop(byte)) return Order{byte, Order::Kind::other};
  const auto now = Clock::now();
  if (stop_signal_ == 0) {
    stop_signal_ = byte;
    stopped_at_ = now;
    return Order{byte, Order::Kind::end};
  }
  // SIGHUP does not mean impatience: a terminal that closes sends it more than once.
  if (byte == SIGHUP || now - stopped_at_ < kOneRequest) return Order{byte, Order::Kind::repeat};
  return Order{byte, Order::Kind::end_now};
}

}  // namespace tendon::cli
