// SPDX-License-Identifier: Apache-2.0
#include "controller/nursery.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <tendon/core/error.hpp>

#include "controller/spawn.hpp"

namespace engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The time to import torch, on a busy machine.
constexpr auto kPatience = 60s;
constexpr std::size_t kReplyBytes = 4096;

tendon::Error failed(std::string what) {
  return {tendon::ErrorCode::system, "engine.nursery", std::move(what)};
}

}  // namespace

tendon::Result<std::unique_ptr<Nursery>> Nursery::open(const std::string& command) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return tendon::system_error("engine.nursery", "prctl(PR_SET_CHILD_SUBREAPER)", errno);
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return tendon::system_error("engine.nursery", "socketpair", errno);
  }
  const auto pid = spawn(words_of(command), ends[1]);
  close(ends[1]);
  if (!pid.has_value()) {
    close(ends[0]);
    return pid.error();
  }
  return std::make_unique<Nursery>(*pid, ends[0]);
}

Nursery::~Nursery() {
  close(socket_);
  kill_and_reap(pid_);
}

tendon::Result<pid_t> Nursery::start(const std::string& command) {
  const std::lock_guard lock(mutex_);
  const std::string line = command + "\n";
  if (send(socket_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return failed("the process that makes workers has gone");
  }
  TENDON_TRY(said, reply());
  pid_t pid = 0;
  const auto [end, failure] = std::from_chars(said.data(), said.data() + said.size(), pid);
  if (failure != std::errc() || end != said.data() + said.size() || pid <= 0) return failed(said);
  return pid;
}

void Nursery::cancel() { (void)shutdown(socket_, SHUT_RDWR); }

/// Reads one line.
tendon::Result<std::string> Nursery::reply() {
  const Clock::time_point until = Clock::now() + kPatience;
  std::string said;
  while (said.size() < kReplyBytes) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    const int found = poll(&ready, 1, static_cast<int>(std::max<long>(left.count(), 0)));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) {
      return tendon::Error{tendon::ErrorCode::timeout, "engine.nursery",
                           "the process that makes workers said nothing for a minute"};
    }
    char byte = 0;
    if (recv(socket_, &byte, 1, 0) != 1) return failed("the process that makes workers has ended");
    if (byte == '\n') return said;
    said += byte;
  }
  return failed("what makes workers said no number: " + said);
}

}  // namespace engine
