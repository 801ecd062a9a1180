// SPDX-License-Identifier: Apache-2.0
#include "cli/process.hpp"

#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

extern char** environ;

namespace tendon::cli {

Result<PeerProcess> PeerProcess::start(std::string_view role, Value::Map parameters,
                                       std::vector<std::string> by) {
  parameters.emplace_back("parent", static_cast<std::int64_t>(getpid()));
  TENDON_TRY(json, to_json(Value(std::move(parameters))));
  std::vector<std::string> words = std::move(by);
  std::string program = "/proc/self/exe";
  // Another program executes this one by name, for which /proc/self would be that program.
  if (!words.empty()) {
    std::error_code failed;
    const std::string self = std::filesystem::read_symlink(program, failed).string();
    if (failed) return system_error("cli.process", "readlink('/proc/self/exe')", failed.value());
    words.push_back(self);
    program = words.front();
  } else {
    words.emplace_back("tendon");
  }
  words.insert(words.end(), {kVerb, std::string(role), std::move(json)});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  // posix_spawn, because fork() would run every fork handler of the library for nothing.
  const int failure =
      posix_spawnp(&pid, program.c_str(), nullptr, nullptr, arguments.data(), environ);
  if (failure != 0) return system_error("cli.process", "posix_spawnp('" + program + "')", failure);
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

bool PeerProcess::has_ended() const {
  siginfo_t info{};
  return pid_ <= 0 ||
         (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid == pid_);
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
  // The parent may have died before the line above.
  if (getppid() != parent) _exit(1);
}

std::size_t usable_cpu_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::size_t>(CPU_COUNT(&set))
                                                     : 1;
}

int usable_cpu(std::size_t index) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && index-- == 0) return cpu;
  return -1;
}

void pin_thread(std::size_t index) {
  const int cpu = usable_cpu(index);
  if (cpu < 0) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace tendon::cli
