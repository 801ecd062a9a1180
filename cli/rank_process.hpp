// SPDX-License-Identifier: Apache-2.0
// From the words of a command line to a running rank of a launched program.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::cli {

/// The file that a shell would run for `word`: looked up in PATH unless it has a slash.
/// file_not_found or permission_denied.
[[nodiscard]] Result<std::string> find_program(const std::string& word);

struct RankStart {
  std::string path;                      ///< of find_program()
  std::vector<std::string> words;        ///< the program's arguments, its name first
  std::vector<std::string> environment;  ///< "NAME=value"
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;
  sigset_t blocked;  ///< signals the program finds blocked
};
/// Starts it as the leader of a process group of its own, killed when the calling thread's process
/// dies. Returns when the program runs; when it cannot be run, this is the error that says why.
/// The caller must be the only thread.
[[nodiscard]] Result<pid_t> start_rank(RankStart start);

}  // namespace tendon::cli
