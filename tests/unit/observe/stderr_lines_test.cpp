// SPDX-License-Identifier: Apache-2.0
// Lines on a descriptor, for as long as it leads to the same file.
#include "observe/stderr_lines.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/fd.hpp"
#include "support/child.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using detail::FileMark;
using detail::OwnedFd;
using detail::StderrLines;

class Stderr : public testing::Test {
 protected:
  [[nodiscard]] OwnedFd open_file(const std::string& name) const {
    return OwnedFd(open(path(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_.path() / name; }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Makes the number of `at` lead to the file of `from`.
  static void put(const OwnedFd& from, const OwnedFd& at) {
    ASSERT_EQ(dup2(from.get(), at.get()), at.get());
  }
  const ScratchDir folder_;
};

TEST_F(Stderr, AProgramGetsItsLines) {
  const OwnedFd fd = open_file("log");
  StderrLines lines(FileMark::of(fd.get()), fd.get());
  lines.write("one\n");
  lines.write("two\n");
  EXPECT_EQ(text_of("log"), "one\ntwo\n");
}

TEST_F(Stderr, AnotherFileGetsNone) {
  const OwnedFd fd = open_file("log");
  const OwnedFd same = open_file("log");
  StderrLines lines(FileMark::of(fd.get()), fd.get());
  put(open_file("data"), fd);
  lines.write("one\n");
  lines.write("two\n");
  EXPECT_EQ(text_of("data"), "");
  EXPECT_EQ(lines.left_out(), 2U);
  put(same, fd);
  lines.write("three\n");
  EXPECT_EQ(text_of("log").substr(0, 27), "tendon: 2 lines were left o");
  EXPECT_EQ(text_of("log").substr(text_of("log").size() - 7), "\nthree\n");
  EXPECT_EQ(lines.left_out(), 0U);
  lines.write("four\n");
  EXPECT_EQ(text_of("log").substr(text_of("log").size() - 12), "\nthree\nfour\n") << "told once";
}

TEST_F(Stderr, ASocketInItsPlaceGetsNone) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const OwnedFd here(ends[0]);
  const OwnedFd there(ends[1]);
  const OwnedFd fd = open_file("log");
  StderrLines lines(FileMark::of(fd.get()), fd.get());
  put(here, fd);
  lines.write("one\n");
  char byte = 0;
  EXPECT_EQ(read(there.get(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  // A program that got the file as its standard error has its lines there.
  StderrLines(FileMark::of(fd.get()), fd.get()).write("one\n");
  EXPECT_EQ(read(there.get(), &byte, 1), 1);
}

TEST_F(Stderr, AClosedOneGetsNoneEvenIfItWasClosedFromTheBeginning) {
  OwnedFd fd = open_file("log");
  const int number = fd.get();
  fd.reset();
  StderrLines lines(FileMark::of(number), number);
  EXPECT_EQ(FileMark::of(number), FileMark{});
  lines.write("one\n");
  const OwnedFd data = open_file("data");
  ASSERT_EQ(data.get(), number) << "the lowest free number";
  lines.write("two\n");
  EXPECT_EQ(text_of("data"), "");
  EXPECT_EQ(lines.left_out(), 2U);
}

TEST_F(Stderr, ALaterFileOfTheSameNumberIsAnother) {
  // Other processes make files too, which may get the number that became free.
  for (int round = 0; round < 100; ++round) {
    OwnedFd fd = open_file("log");
    const FileMark before = FileMark::of(fd.get());
    struct statx file {};
    ASSERT_EQ(statx(fd.get(), "", AT_EMPTY_PATH, STATX_BTIME, &file), 0);
    if ((file.stx_mask & STATX_BTIME) == 0) GTEST_SKIP() << "no time of birth on this file system";
    fd.reset();
    std::filesystem::remove(path("log"));
    // Files that are made within one tick of the kernel's clock have the same birth time.
    timespec now{};
    while (now.tv_sec < file.stx_btime.tv_sec ||
           (now.tv_sec == file.stx_btime.tv_sec && now.tv_nsec <= file.stx_btime.tv_nsec))
      ASSERT_EQ(clock_gettime(CLOCK_REALTIME_COARSE, &now), 0);
    const OwnedFd data = open_file("data");
    const FileMark after = FileMark::of(data.get());
    std::filesystem::remove(path("data"));
    if (after.number != before.number) continue;
    EXPECT_NE(after, before);
    return;
  }
  GTEST_SKIP() << "this file system gives no number again soon";
}

TEST_F(Stderr, AReaderThatHasGoneEndsNoProcess) {
  const int status = run_in_child([] {
    signal(SIGPIPE, SIG_DFL);
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return 2;
    close(ends[0]);
    StderrLines(FileMark::of(ends[1]), ends[1]).write("one\n");
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE) != 0) return 3;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    return sigismember(&blocked, SIGPIPE) == 0 ? 0 : 4;
  });
  EXPECT_TRUE(exited_with(status, 0)) << "status " << status;
}

}  // namespace
}  // namespace tendon::test
