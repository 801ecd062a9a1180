// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace tendon::test {

/// Makes a signal end this process as it would without a sanitizer, and without a core file.
inline void die_plainly_of(int signal_number) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(signal_number, SIG_DFL);
}

/// Calls waitpid() for one child and returns its status, as <sys/wait.h> reads it; -1 if there is
/// no such child.
inline int wait_for(pid_t child, int options = 0) {
  int status = -1;
  while (waitpid(child, &status, options) < 0) {
    if (errno != EINTR) return -1;
  }
  return status;
}

inline constexpr unsigned kLongestChildSeconds = 60;

/// Forks, runs `body` in the child and returns the child's wait status. The result of `body` is the
/// exit code; assertions belong to the parent. SIGALRM ends a child that hangs.
template <class Body>
int run_in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    die_plainly_of(SIGSEGV);
    die_plainly_of(SIGABRT);
    alarm(kLongestChildSeconds);
    _exit(body());
  }
  return wait_for(child);
}

inline bool exited_with(int status, int code) {
  return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == code;
}
inline bool killed_by(int status, int signal_number) {
  return status != -1 && WIFSIGNALED(status) && WTERMSIG(status) == signal_number;
}

}  // namespace tendon::test
