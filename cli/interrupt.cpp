// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>

namespace tendon::cli {

Result<void> Interrupt::start() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  if (const int failure = pthread_sigmask(SIG_BLOCK, &set, nullptr); failure != 0)
    return system_error("cli.interrupt", "pthread_sigmask", failure);
  signals_ = detail::OwnedFd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!signals_) return system_error("cli.interrupt", "signalfd", errno);
  stop_ = detail::OwnedFd(eventfd(0, EFD_CLOEXEC));
  if (!stop_) return system_error("cli.interrupt", "eventfd", errno);
  TENDON_TRY(thread, detail::Thread::start({.name = "tendon-signals",
                                            .where = "cli.interrupt",
                                            .task = "that waits for signals"},
                                           [this] { watch(); }));
  thread_ = std::move(thread);
  return {};
}

Interrupt::~Interrupt() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  if (write(stop_.get(), &one, sizeof one) == sizeof one)
    thread_.join();
  else
    thread_.detach();
}

Error Interrupt::error(std::string_view where) const {
  return Error{ErrorCode::cancelled, where,
               std::string("ended by ") + strsignal(signal_number()) + " (signal " +
                   std::to_string(signal_number()) + ")"};
}

void Interrupt::watch() {
  while (true) {
    std::array<pollfd, 2> ready = {pollfd{signals_.get(), POLLIN, 0},
                                   pollfd{stop_.get(), POLLIN, 0}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    signalfd_siginfo info{};
    if (ready[0].revents == 0 || read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    const int number = static_cast<int>(info.ssi_signo);
    if (requested()) _exit(128 + number);
    signal_number_.store(number, std::memory_order_release);
    const detail::Lock lock(mutex_);
    if (action_) std::exchange(action_, nullptr)();
  }
}

Interrupt::Guard::Guard(Interrupt& interrupt, std::function<void()> action)
    : interrupt_(interrupt) {
  const detail::Lock lock(interrupt_.mutex_);
  if (interrupt_.requested())
    action();
  else
    interrupt_.action_ = std::move(action);
}

Interrupt::Guard::~Guard() {
  const detail::Lock lock(interrupt_.mutex_);
  interrupt_.action_ = nullptr;
}

}  // namespace tendon::cli
