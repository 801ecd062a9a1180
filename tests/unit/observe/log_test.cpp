// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tendon/observe/log.hpp>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/sanitizer.hpp"

namespace {

using tendon::LogLevel;

constexpr LogLevel kLevels[] = {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug};

// First, so that no other test has set a level yet. Runs again, in processes of their own with
// TENDON_LOG set, for the tests of the environment below.
TEST(LogDefault, LevelIsThatOfTheEnvironmentElseWarn) {
  const char* text = std::getenv("TENDON_LOG");
  const auto expected = tendon::parse_log_level(text == nullptr ? "" : text);
  for (const auto level : kLevels) {
    EXPECT_EQ(tendon::log_enabled(level), level <= expected.value_or(LogLevel::warn));
    if (std::getenv("TENDON_LOG_TEST_CHILD") != nullptr) tendon::log(level, "t", "x");
  }
}

struct Capture {
  explicit Capture(LogLevel level) {
    tendon::set_log_callback(level,
                             [this](LogLevel at, std::string_view where, std::string_view text) {
                               const std::lock_guard lock(mutex);
                               lines.push_back(std::string(to_string(at)) + " " +
                                               std::string(where) + " " + std::string(text));
                             });
  }
  ~Capture() { tendon::set_log_callback(LogLevel::warn, {}); }
  std::mutex mutex;
  std::vector<std::string> lines;
};

TEST(Log, LevelsReadBack) {
  for (const auto level : kLevels) {
    EXPECT_EQ(tendon::parse_log_level(to_string(level)), level);
  }
  EXPECT_EQ(tendon::parse_log_level("WARN"), std::nullopt);
  EXPECT_EQ(tendon::parse_log_level(""), std::nullopt);
}

// The words may be a peer's, and the callback's end a terminal.
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

TEST(Log, EmptyCallbackBringsBackStderr) {
  { Capture capture(LogLevel::debug); }
  testing::internal::CaptureStderr();
  tendon::log(LogLevel::warn, "x.y", "to stderr");
  tendon::log(LogLevel::info, "x.y", "to nobody");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "tendon warn [x.y] to stderr\n");
}

TEST(Log, WhatACallbackThrowsIsDropped) {
  tendon::set_log_callback(LogLevel::warn, [](LogLevel, std::string_view, std::string_view) {
    throw std::runtime_error("full disk");
  });
  tendon::log(LogLevel::error, "x.y", "text");
  tendon::set_log_callback(LogLevel::warn, {});
}

TEST(Log, ACallbackMayLogAndReplaceItself) {
  int calls = 0;
  tendon::set_log_callback(LogLevel::warn, [&](LogLevel, std::string_view, std::string_view) {
    if (++calls < 3) tendon::log(LogLevel::warn, "x.y", "again");
    tendon::set_log_callback(LogLevel::error, [](LogLevel, std::string_view, std::string_view) {});
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
      tendon::set_log_callback(LogLevel::warn, [&](LogLevel, std::string_view, std::string_view) {
        const std::lock_guard lock(first.mutex);
        first.lines.emplace_back("line");
      });
    }
  }
  EXPECT_EQ(first.lines.size(), 3000u);
}

TEST(Log, AChildThatIsForkedWhileOthersLogMayLog) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  tendon::set_log_callback(LogLevel::warn, [](LogLevel, std::string_view, std::string_view) {});
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

// The environment is read once, at the first use: a process of its own shows it.
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
  return status == 0 ? text : "child failed: " + text;
}

TEST(Log, EnvironmentSetsTheLevel) {
  const std::string error = "tendon error [t] x\n";
  const std::string warn = error + "tendon warn [t] x\n";
  EXPECT_EQ(stderr_with_environment("error"), error);
  EXPECT_EQ(stderr_with_environment(""), warn);
  EXPECT_EQ(stderr_with_environment("debug"), warn + "tendon info [t] x\ntendon debug [t] x\n");
}

TEST(Log, EnvironmentSaysWhatItDoesNotUnderstand) {
  EXPECT_EQ(stderr_with_environment("loud"),
            "tendon warn [observe.log] TENDON_LOG is 'loud'; legal are error, warn, info, debug. "
            "Using warn.\ntendon error [t] x\ntendon warn [t] x\n");
}

}  // namespace
