// SPDX-License-Identifier: Apache-2.0
#include "cli/process.hpp"

#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

extern char** environ;

namespace tendon::cli {

Result<PeerProcess> PeerProcess::start(std::string_view role, Value::Map parameters) {
  parameters.emplace_back("parent", static_cast<std::int64_t>(getpid()));
  TENDON_TRY(json, to_json(Value(std::move(parameters))));
  std::string role_text(role);
  std::array<std::string, 3> words = {"tendon", "bench", "peer"};
  std::array<char*, 6> arguments = {words[0].data(),  words[1].data(), words[2].data(),
                                    role_text.data(), json.data(),     nullptr};
  pid_t pid = 0;
  // posix_spawn, because fork() would run every fork handler of the library for nothing.
  const int failure =
      posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
  if (failure != 0) return system_error("cli.process", "posix_spawn('/proc/self/exe')", failure);
  return PeerProcess(pid);
}

PeerProcess& PeerProcess::operator=(PeerProcess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, 0);
  }
  return *this;
}

void PeerProcess::signal(int number) const {
  if (pid_ > 0) kill(pid_, number);
}

int PeerProcess::wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) break;
  }
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void PeerProcess::end() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  wait();
}

void follow_parent(std::int64_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the line above.
  if (getppid() != parent) _exit(1);
}

std::size_t usable_cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::size_t>(CPU_COUNT(&set))
                                                     : 1;
}

void pin_thread(std::size_t index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || index-- != 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

}  // namespace tendon::cli
