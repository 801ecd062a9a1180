// SPDX-License-Identifier: Apache-2.0
#include "core/fork_guard.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "core/fd.hpp"
#include "support/child.hpp"

namespace tendon::v0::detail {
namespace {

using test::exited_with;
using test::run_in_child;

bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }
int any_descriptor() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(ForkGuard, EpochIsStableAndDiffersDownTheLine) {
  const std::uint32_t mine = process_number();
  EXPECT_EQ(process_number(), mine);
  EXPECT_NE(mine, 0u);
  const int status = run_in_child([mine] {
    const std::uint32_t child = process_number();
    if (child == mine || child == 0 || child != process_number()) return 1;
    const int grandchild = run_in_child(
        [mine, child] { return process_number() != mine && process_number() != child ? 0 : 1; });
    return exited_with(grandchild, 0) ? 0 : 2;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_EQ(process_number(), mine) << "a fork must not change its parent";
}

// A child made by a bare system call runs no handler; only the wiped page shows the fork.
TEST(ForkGuard, EpochDiffersWithoutTheHandler) {
  const std::uint32_t mine = process_number();
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
  if (child == 0) _exit(process_number() != mine && process_number() == process_number() ? 0 : 1);
  ASSERT_GT(child, 0);
  EXPECT_TRUE(exited_with(test::wait_for(child), 0));
}

TEST(ForkGuard, ManyThreadsOfOneChildAgree) {
  const int status = run_in_child([] {
    std::array<std::uint32_t, 4> seen{};
#if !defined(__SANITIZE_THREAD__)  // it allows no thread after a fork
    std::array<std::thread, seen.size()> threads;
    for (std::size_t i = 0; i < seen.size(); ++i)
      threads[i] = std::thread([&seen, i] { seen[i] = process_number(); });
    for (std::thread& thread : threads) thread.join();
#else
    seen.fill(process_number());
#endif
    for (const std::uint32_t process : seen)
      if (process != process_number()) return 1;
    return 0;
  });
  EXPECT_TRUE(exited_with(status, 0));
}

TEST(OwnedFd, MovesAndClosesOnce) {
  OwnedFd first(any_descriptor());
  ASSERT_TRUE(first);
  const int number = first.get();
  OwnedFd second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(second.get(), number);
  OwnedFd third(any_descriptor());
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(number));
  third.reset();
  EXPECT_FALSE(is_open(number));
  third.reset();
  EXPECT_FALSE(third);
}

TEST(OwnedFd, FailedCallsOwnNothing) {
  OwnedFd none(-1);
  EXPECT_FALSE(none);
  none.reset();
}

TEST(OwnedFd, IsClosedInAForkedChild) {
  const OwnedFd kept(any_descriptor());
  const int number = kept.get();
  const int plain = any_descriptor();
  const int status =
      run_in_child([&] { return (is_open(number) ? 1 : 0) + (is_open(plain) ? 0 : 2); });
  EXPECT_TRUE(exited_with(status, 0))
      << "1: ours still open; 2: somebody else's closed; " << status;
  EXPECT_TRUE(is_open(kept.get()));
  close(plain);
}

TEST(OwnedFd, PeerSeesTheEndAlthoughAChildLivesOn) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  std::array<int, 2> leash{};
  ASSERT_EQ(pipe2(leash.data(), O_CLOEXEC), 0);
  OwnedFd writer(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    close(leash[1]);
    char byte = 0;
    _exit(TEMP_FAILURE_RETRY(read(leash[0], &byte, 1)) == 0 ? 0 : 1);  // until the parent ends it
  }
  ASSERT_GT(child, 0);
  writer.reset();
  char byte = 0;
  EXPECT_EQ(TEMP_FAILURE_RETRY(read(ends[0], &byte, 1)), 0) << "the child holds the writing end";
  close(leash[0]);
  close(leash[1]);
  close(ends[0]);
  EXPECT_TRUE(exited_with(test::wait_for(child), 0));
}

// The child's numbers are free for its own use; the parent's objects must not use or close them.
TEST(OwnedFd, NeverNamesAReusedNumberInAChild) {
  auto kept = std::make_unique<OwnedFd>(any_descriptor());
  OwnedFd assigned(any_descriptor());
  const int numbers[] = {kept->get(), assigned.get()};
  const int status = run_in_child([&] {
    if (kept->get() != -1 || *kept) return 4;
    for (const int number : numbers)
      if (dup2(STDERR_FILENO, number) != number) return 1;
    kept.reset();
    assigned = OwnedFd();
    if (!is_open(numbers[0]) || !is_open(numbers[1])) return 2;
    const int grandchild =
        run_in_child([&] { return is_open(numbers[0]) && is_open(numbers[1]) ? 0 : 1; });
    return exited_with(grandchild, 0) ? 0 : 3;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(OwnedFd, MadeInAChildIsTheChilds) {
  const int status = run_in_child([] {
    OwnedFd own(any_descriptor());
    const int number = own.get();
    const int grandchild = run_in_child([number] { return is_open(number) ? 1 : 0; });
    if (!exited_with(grandchild, 0)) return 1;
    own.reset();
    return is_open(number) ? 2 : 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(OwnedFd, ForgetsANumberWhenItIsClosed) {
  OwnedFd owned(any_descriptor());
  const int number = owned.get();
  owned.reset();
  ASSERT_EQ(dup2(STDERR_FILENO, number), number);
  const int status = run_in_child([number] { return is_open(number) ? 0 : 1; });
  EXPECT_TRUE(exited_with(status, 0)) << "the child closed a descriptor that is not ours";
  close(number);
}

TEST(OwnedFd, ForkWhileOthersOpenAndClose) {
  std::atomic<bool> done{false};
  std::thread churn([&done] {
    while (!done.load(std::memory_order_relaxed)) {
      OwnedFd first(any_descriptor());
      OwnedFd second(any_descriptor());
      first = std::move(second);
    }
  });
  const OwnedFd kept(any_descriptor());
  const int plain = any_descriptor();
  int wrong = 0;
  for (int i = 0; i < 100; ++i) {
    const int status = run_in_child([&] { return is_open(kept.get()) || !is_open(plain) ? 1 : 0; });
    if (!exited_with(status, 0)) ++wrong;
  }
  done = true;
  churn.join();
  close(plain);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tendon::v0::detail
