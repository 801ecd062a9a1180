// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <regex>
#include <stdexcept>
#include <string>
#include <tendon/observe/log.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "observe/context_log.hpp"
#include "support/child.hpp"
#include "support/sanitizer.hpp"
#include "support/scratch_dir.hpp"

namespace {

using tendon::LogLevel;

constexpr LogLevel kLevels[] = {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug};

// This test is the first, so that no other test has set a level yet. The tests of the environment
// below run it again in separate processes with TENDON_LOG set.
TEST(LogDefault, LevelIsThatOfTheEnvironmentElseWarn) {
  const char* text = std::getenv("TENDON_LOG");
  const auto expected = tendon::parse_word<LogLevel>(text == nullptr ? "" : text);
  for (const auto level : kLevels) {
    EXPECT_EQ(tendon::log_enabled(level), level <= expected.value_or(LogLevel::warn));
    if (std::getenv("TENDON_LOG_TEST_CHILD") != nullptr) tendon::log(level, "t", "x");
  }
}

struct Capture {
  explicit Capture(LogLevel level) {
    tendon::set_log_callback(level, [this](const tendon::LogLine& line) {
      const std::lock_guard lock(mutex);
      lines.push_back(std::string(to_string(line.level)) + " " + std::string(line.where) + " " +
                      std::string(line.text));
    });
  }
  ~Capture() { tendon::set_log_callback(LogLevel::warn, {}); }
  std::mutex mutex;
  std::vector<std::string> lines;
};

// The words may come from a peer, and the callback may write to a terminal.
TEST(Log, ControlCharactersDoNotComeThrough) {
  Capture capture(LogLevel::warn);
  tendon::log(LogLevel::warn, "t",
              "a\x1b[2Jb\nc\xC2\x9B"
              "2Jd\x9B\x7F"
              "e\xC3\xA9");
  ASSERT_EQ(capture.lines.size(), 1u);
  EXPECT_EQ(capture.lines[0], "warn t a [2Jb c 2Jd  e\xC3\xA9");
}

TEST(Log, PassesItsLevelAndThoseBefore) {
  Capture capture(LogLevel::info);
  EXPECT_TRUE(tendon::log_enabled(LogLevel::info));
  EXPECT_FALSE(tendon::log_enabled(LogLevel::debug));
  tendon::log(LogLevel::error, "a.b", "one");
  tendon::log(LogLevel::info, "a.c", "two");
  tendon::log(LogLevel::debug, "a.d", "three");
  EXPECT_EQ(capture.lines, (std::vector<std::string>{"error a.b one", "info a.c two"}));
}

/// Lines of this process, or of another one, without their time and pid.
std::string without_front(const std::string& lines) {
  static const std::regex kFront(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z tendon\[\d+\] )");
  return std::regex_replace(lines, kFront, "");
}

TEST(Log, ALineHasItsTimeItsProcessAndItsContext) {
  using namespace std::chrono;
  const auto day = sys_days{year{2026} / 2 / 28};
  tendon::LogLine line{.time = day + hours(3) + minutes(4) + seconds(5) + microseconds(67'899),
                       .pid = 4711,
                       .context = "learner/3f2a91c0",
                       .level = LogLevel::warn,
                       .where = "listener.accept",
                       .text = "refused 10.0.0.7:40312"};
  EXPECT_EQ(to_string(line),
            "2026-02-28T03:04:05.067Z tendon[4711] warn learner/3f2a91c0 [listener.accept] "
            "refused 10.0.0.7:40312");
  line.context = {};
  line.time = sys_days{year{1969} / 12 / 31} + hours(23);
  EXPECT_EQ(to_string(line),
            "1969-12-31T23:00:00.000Z tendon[4711] warn - [listener.accept] refused "
            "10.0.0.7:40312");
}

TEST(Log, SaysWhenAndWhichProcessAndContext) {
  const auto before = std::chrono::system_clock::now();
  int count = 0;
  tendon::set_log_callback(LogLevel::warn, [&](const tendon::LogLine& line) {
    EXPECT_GE(line.time, before);
    EXPECT_LE(line.time, std::chrono::system_clock::now());
    EXPECT_EQ(line.pid, static_cast<std::uint32_t>(getpid()));
    EXPECT_EQ(line.context, count == 0 ? "" : "a b/01234567");
    ++count;
  });
  tendon::log(LogLevel::warn, "x.y", "about none");
  tendon::detail::log_of("a\nb/01234567", LogLevel::warn, "x.y", "about one");
  EXPECT_EQ(count, 2);
  tendon::set_log_callback(LogLevel::warn, {});
}

TEST(Log, LeavesErrnoAsItIs) {
  tendon::set_log_callback(LogLevel::warn, [](const tendon::LogLine&) { errno = EINVAL; });
  errno = EMFILE;
  tendon::log(LogLevel::warn, "x.y", "line");
  EXPECT_EQ(errno, EMFILE);
  tendon::set_log_callback(LogLevel::warn, {});
}

TEST(Log, EmptyCallbackBringsBackStderrAsItIsThen) {
  { Capture capture(LogLevel::debug); }
  testing::internal::CaptureStderr();
  tendon::log(LogLevel::warn, "x.y", "not into a file that was put in its place");
  tendon::set_log_callback(LogLevel::warn, {});
  tendon::log(LogLevel::warn, "x.y", "to stderr");
  tendon::log(LogLevel::info, "x.y", "to nobody");
  const std::string lines = testing::internal::GetCapturedStderr();
  tendon::set_log_callback(LogLevel::warn, {});
  EXPECT_EQ(without_front(lines),
            "tendon: 1 lines were left out: descriptor 2 was another file "
            "(tendon/observe/log.hpp)\nwarn - [x.y] to stderr\n");
}

// Each entry opens what a program may open after it has closed descriptor 2, and gets that number.
TEST(Log, NoLineGoesToADescriptorThatWasClosedAndReused) {
  const tendon::test::ScratchDir folder;
  const std::string path = (folder.path() / "data").string();
  const std::vector<std::pair<std::string, std::function<int()>>> reuses{
      {"a file", [&] { return open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600); }},
      {"a journal", [&] { return open(path.c_str(), O_RDWR | O_CREAT | O_APPEND, 0600); }},
      {"a socket",
       [] {
         std::array<int, 2> ends{};
         return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0 ? ends[0]
                                                                                      : -1;
       }},
      {"nothing", [] { return STDERR_FILENO; }}};
  for (const auto& [what, reuse] : reuses) {
    const int status = tendon::test::run_in_child([&reuse = reuse] {
      close(STDERR_FILENO);
      if (reuse() != STDERR_FILENO) return 2;
      tendon::log(LogLevel::error, "x.y", "line");
      struct stat file {};
      if (fstat(STDERR_FILENO, &file) == 0 && file.st_size != 0) return 3;
      // The other end of the socketpair has the next free number.
      char byte = 0;
      if (S_ISSOCK(file.st_mode)) {
        for (int fd = 3; fd < 64; ++fd)
          if (recv(fd, &byte, 1, MSG_DONTWAIT) > 0) return 4;
      }
      return 0;
    });
    EXPECT_TRUE(tendon::test::exited_with(status, 0)) << what << ": status " << status;
  }
}

TEST(Log, WhatACallbackThrowsIsDropped) {
  tendon::set_log_callback(LogLevel::warn,
                           [](const tendon::LogLine&) { throw std::runtime_error("full disk"); });
  tendon::log(LogLevel::error, "x.y", "text");
  tendon::set_log_callback(LogLevel::warn, {});
}

TEST(Log, ACallbackMayLogAndReplaceItself) {
  int calls = 0;
  tendon::set_log_callback(LogLevel::warn, [&](const tendon::LogLine&) {
    if (++calls < 3) tendon::log(LogLevel::warn, "x.y", "again");
    tendon::set_log_callback(LogLevel::error, [](const tendon::LogLine&) {});
  });
  tendon::log(LogLevel::warn, "x.y", "first");
  EXPECT_EQ(calls, 3);
  tendon::set_log_callback(LogLevel::warn, {});
}

TEST(Log, SeveralThreadsLogWhileTheCallbackChanges) {
  Capture first(LogLevel::warn);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([] {
        for (int i = 0; i < 1000; ++i) tendon::log(LogLevel::warn, "x.y", "line");
      });
    }
    for (int i = 0; i < 100; ++i) {
      tendon::set_log_callback(LogLevel::warn, [&](const tendon::LogLine&) {
        const std::lock_guard lock(first.mutex);
        first.lines.emplace_back("line");
      });
    }
  }
  EXPECT_EQ(first.lines.size(), 3000u);
}

TEST(Log, AChildThatIsForkedWhileOthersLogMayLog) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  tendon::set_log_callback(LogLevel::warn, [](const tendon::LogLine&) {});
  std::atomic<bool> over{false};
  std::vector<std::jthread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!over) tendon::log(LogLevel::warn, "x.y", "line");
    });
  }
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    const int status = tendon::test::run_in_child([] {
      tendon::log(LogLevel::warn, "x.y", "line of the child");
      return 0;
    });
    EXPECT_TRUE(tendon::test::exited_with(status, 0)) << "fork " << i << ": status " << status;
  }
  over = true;
  others.clear();
  tendon::set_log_callback(LogLevel::warn, {});
}

// Neither a parent nor dup2() leaves a descriptor that exec() closes.
TEST(Log, AFileThatExecClosesIsNoStandardError) {
  const tendon::test::ScratchDir folder;
  const std::string path = (folder.path() / "data").string();
  const int status = tendon::test::run_in_child([&path] {
    close(STDERR_FILENO);
    if (open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600) != STDERR_FILENO) return 2;
    tendon::set_log_callback(LogLevel::warn, {});
    tendon::log(LogLevel::error, "x.y", "line");
    struct stat file {};
    if (fstat(STDERR_FILENO, &file) != 0 || file.st_size != 0) return 3;
    fcntl(STDERR_FILENO, F_SETFD, 0);
    tendon::set_log_callback(LogLevel::warn, {});
    tendon::log(LogLevel::error, "x.y", "line");
    return fstat(STDERR_FILENO, &file) == 0 && file.st_size != 0 ? 0 : 4;
  });
  EXPECT_TRUE(tendon::test::exited_with(status, 0)) << "status " << status;
}

// The environment is read once, at the first use: the test needs a separate process.
std::string stderr_with_environment(const char* value) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "pipe failed";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv("TENDON_LOG", value, 1);
    setenv("TENDON_LOG_TEST_CHILD", "1", 1);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    execl("/proc/self/exe", "log_test", "--gtest_filter=LogDefault.*", static_cast<char*>(nullptr));
    _exit(1);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 512> chunk{};
  for (ssize_t n = 0; (n = TEMP_FAILURE_RETRY(read(ends[0], chunk.data(), chunk.size()))) > 0;) {
    text.append(chunk.data(), static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? without_front(text) : "child failed: " + text;
}

TEST(Log, EnvironmentSetsTheLevel) {
  const std::string error = "error - [t] x\n";
  const std::string warn = error + "warn - [t] x\n";
  EXPECT_EQ(stderr_with_environment("error"), error);
  EXPECT_EQ(stderr_with_environment(""), warn);
  EXPECT_EQ(stderr_with_environment("debug"), warn + "info - [t] x\ndebug - [t] x\n");
}

TEST(Log, EnvironmentSaysWhatItDoesNotUnderstand) {
  EXPECT_EQ(stderr_with_environment("loud"),
            "warn - [observe.log] TENDON_LOG is 'loud'; legal are error, warn, info, debug. "
            "Using warn.\nerror - [t] x\nwarn - [t] x\n");
}

}  // namespace
