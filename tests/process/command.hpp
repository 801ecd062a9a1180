// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/fd.hpp"

namespace tendon::test {

/// How a run of the `tendon` command ended, and what it printed.
struct Ended {
  int code = -1;  ///< exit code, or 128 + the signal that ended it
  std::string out;
  std::string err;
};
inline void PrintTo(const Ended& ended, std::ostream* stream) {
  *stream << "exit code " << ended.code << "\nstdout: " << ended.out << "\nstderr: " << ended.err;
}

/// A run of the `tendon` command that this build made, or of another program. Killed with its
/// object.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments,
                   std::string program = TENDON_CLI_PATH);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  /// Waits until stderr has a line that starts with `prefix`; what follows the prefix. A failure
  /// and "" when the command ends first.
  std::string wait_for_err(std::string_view prefix);
  /// Whether stderr has it by now.
  bool has_said(std::string_view text);
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Waits until it has stopped (SIGSTOP); a failure when it ends first.
  void wait_until_stopped();
  /// Reads both streams to their end and waits for the process.
  Ended finish();

 private:
  struct Stream {
    detail::OwnedFd fd;
    std::string text;
  };
  /// Takes in what either stream has; false when both have ended.
  bool read_some();

  pid_t pid_ = -1;
  Stream out_;
  Stream err_;
  std::size_t err_seen_ = 0;
};

/// Runs it to its end.
Ended run_tendon(const std::vector<std::string>& arguments);
/// Runs the benchmarks of benchmarks/processes/, likewise.
Ended run_processes(const std::vector<std::string>& arguments);

}  // namespace tendon::test
