// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "core/fd.hpp"

namespace tendon::test {

/// Another process that runs a program of this folder, and obeys its input line by line. The
/// destructor kills it.
class Peer {
 public:
  struct Options {
    std::vector<std::string> arguments;
    std::map<std::string, std::string> environment;  ///< added to that of this process
    std::string program = "peer_main";
  };
  explicit Peer(Options options);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Sends a command, and waits for the answer.
  std::string ask(const std::string& command);
  /// Sends a command without waiting.
  void tell(const std::string& command);
  /// Reads its next line; "" when it has ended.
  std::string line();
  /// Returns when it has stopped, after SIGSTOP.
  void signal(int number) const;
  void wait_until_stopped() const;
  /// Waits for its end; returns the status for the macros of <sys/wait.h>.
  int wait();
  void kill_and_wait();

 private:
  pid_t pid_ = -1;
  detail::OwnedFd to_;
  detail::OwnedFd from_;
  std::string unread_;
  bool ended_ = false;
  int status_ = -1;
};

/// Expects "ok..."; shows the text otherwise.
testing::AssertionResult is_ok(const std::string& answer);
/// Expects "error <code> ..." with `text` in it.
testing::AssertionResult is_error(const std::string& answer, std::string_view code,
                                  std::string_view text = {});
/// The text after "ok ".
std::string value_of(const std::string& answer);

/// The things that a process leaves in the system: descriptors, shared mappings, files.
struct Residue {
  std::vector<std::string> descriptors;
  std::vector<std::string> mappings;
  std::vector<std::string> files;

  /// The current state of this process, of `runtime_folder` and of /dev/shm.
  static Residue now(const std::string& runtime_folder);
};
testing::AssertionResult same_residue(const Residue& before, const Residue& after);

/// Each test has a runtime directory of its own, so that its files can be counted.
class ProcessTest : public testing::Test {
 protected:
  ProcessTest();
  ~ProcessTest() override;
  [[nodiscard]] const std::string& runtime_folder() const { return folder_; }

 private:
  std::string folder_;
  std::string former_;
};

}  // namespace tendon::test
