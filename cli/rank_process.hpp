// SPDX-License-Identifier: Apache-2.0
// Starts a rank of a launched program from the words of a command line.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::cli {

/// Finds the file that a shell would run for `word`: looks it up in PATH unless it has a slash.
/// Errors: file_not_found, permission_denied.
[[nodiscard]] Result<std::string> find_program(const std::string& word);

struct RankStart {
  std::string path;                      ///< from find_program()
  std::vector<std::string> words;        ///< the program's name and its arguments
  std::vector<std::string> environment;  ///< "NAME=value"
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;
  sigset_t blocked;  ///< the signals that are blocked when the program starts
};
/// Starts the program as the leader of a new process group; it is killed when the calling thread's
/// process dies. Returns when the program runs, or the error that says why it cannot be run. The
/// caller must be the only thread.
[[nodiscard]] Result<pid_t> start_rank(RankStart start);

}  // namespace tendon::cli
