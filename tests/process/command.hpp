// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/fd.hpp"

namespace tendon::test {

/// How a run of the `tendon` command ended, and its output.
struct Ended {
  int code = -1;  ///< exit code, or 128 + the signal that ended it
  std::string out;
  std::string err;
};
inline void PrintTo(const Ended& ended, std::ostream* stream) {
  *stream << "exit code " << ended.code << "\nstdout: " << ended.out << "\nstderr: " << ended.err;
}

/// A run of the `tendon` command of this build, or of another program. The destructor kills it.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments,
                   std::string program = TENDON_CLI_PATH);
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  /// Waits until stderr has a line that starts with `prefix`; returns the text after the prefix. If
  /// the command ends first, it fails the test and returns "".
  std::string wait_for_err(std::string_view prefix);
  /// Whether stderr has the text now.
  bool has_said(std::string_view text);
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Waits until the process has stopped (SIGSTOP); fails the test when the process ends first.
  void wait_until_stopped();
  /// Reads both streams to their end and waits for the process.
  Ended finish();

 private:
  struct Stream {
    detail::OwnedFd fd;
    std::string text;
  };
  /// Reads the bytes that either stream has; returns false when both have ended.
  bool read_some();

  pid_t pid_ = -1;
  Stream out_;
  Stream err_;
  std::size_t err_seen_ = 0;
};

/// Runs the command to its end.
Ended run_tendon(const std::vector<std::string>& arguments);
/// Runs the benchmarks of benchmarks/processes/ to their end.
Ended run_processes(const std::vector<std::string>& arguments);

}  // namespace tendon::test
