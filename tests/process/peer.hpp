// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "core/fd.hpp"

namespace tendon::test {

/// Another process that runs a program of this folder, told what to do line by line. Killed with
/// its object.
class Peer {
 public:
  struct Options {
    std::vector<std::string> arguments;
    std::map<std::string, std::string> environment;  ///< beside that of this process
    std::string program = "peer_main";
  };
  explicit Peer(Options options);
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Tells it to do something, and waits for the answer.
  std::string ask(const std::string& command);
  /// Tells it without waiting.
  void tell(const std::string& command);
  /// Its next line; "" when it ended.
  std::string line();
  /// Returns when it has stopped, after SIGSTOP.
  void signal(int number) const;
  void wait_until_stopped() const;
  /// Waits for its end; the status as <sys/wait.h> reads it.
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

/// "ok..." is a success; the text is shown otherwise.
testing::AssertionResult is_ok(const std::string& answer);
/// "error <code> ..." with `text` in it.
testing::AssertionResult is_error(const std::string& answer, std::string_view code,
                                  std::string_view text = {});
/// What follows "ok ".
std::string value_of(const std::string& answer);

/// What a process leaves in the system: descriptors, shared mappings, files.
struct Residue {
  std::vector<std::string> descriptors;
  std::vector<std::string> mappings;
  std::vector<std::string> files;

  /// What this process, `runtime_folder` and /dev/shm have now.
  static Residue now(const std::string& runtime_folder);
};
testing::AssertionResult same_residue(const Residue& before, const Residue& after);

/// A runtime directory of its own for each test, so that its files can be counted.
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
