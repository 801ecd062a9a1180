// SPDX-License-Identifier: Apache-2.0
#include "core/thread.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "core/thread_room.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/no_threads.hpp"
#include "support/sanitizer.hpp"

namespace tendon::v0::detail {
namespace {

using test::exited_with;
using test::fails_with;
using test::NoThreads;
using test::run_in_child;
using test::succeeds;

constexpr ThreadRole kRole{.name = "tendon-test", .where = "test.thread", .task = "for a test"};

TEST(Threads, RunOnceUnderTheirNameAndAreWaitedFor) {
  std::array<char, 16> name{};
  std::atomic<int> runs{0};
  {
    auto thread = Thread::start(kRole, [&] {
      pthread_getname_np(pthread_self(), name.data(), name.size());
      ++runs;
    });
    ASSERT_TRUE(succeeds(thread));
    EXPECT_TRUE(thread->joinable());
    EXPECT_FALSE(thread->is_current());
  }
  EXPECT_EQ(runs, 1) << "its end waits for it";
  EXPECT_STREQ(name.data(), "tendon-test");
}

TEST(Threads, MoveAndAreJoinedOnce) {
  std::atomic<bool> over{false};
  Thread first = Thread::start(kRole, [&] {
                   while (!over) std::this_thread::yield();
                 }).value();
  Thread second = std::move(first);
  EXPECT_FALSE(first.joinable());  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_TRUE(second.joinable());
  over = true;
  second.join();
  EXPECT_FALSE(second.joinable());
  second.join();
  Thread().join();
}

TEST(Threads, DoNotWaitForThemselves) {
  std::atomic<bool> may_end{false};
  std::atomic<bool> ended{false};
  Thread thread;
  thread = Thread::start(kRole, [&] {
             while (!may_end) std::this_thread::yield();
             EXPECT_TRUE(thread.is_current());
             thread.join();
             EXPECT_FALSE(thread.joinable());
             ended = true;
           }).value();
  may_end = true;
  EXPECT_TRUE(test::eventually([&] { return ended.load(); }));
}

TEST(Threads, ThatCannotStartAreErrorsAndLeaveNothing) {
  const auto held = std::make_shared<int>(1);
  std::atomic<int> runs{0};
  const NoThreads none;
  auto thread = Thread::start(kRole, [&runs, held] { ++runs; });
  ASSERT_TRUE(
      fails_with(thread, ErrorCode::resource_exhausted, "no thread can start for a test: "));
  EXPECT_EQ(thread.error().where, "test.thread");
  EXPECT_EQ(thread.error().system_errno, EAGAIN);
  EXPECT_NE(thread.error().detail.find("ulimit -u"), std::string::npos) << "what to do";
  EXPECT_EQ(held.use_count(), 1) << "what the body holds has been given back";
  EXPECT_EQ(runs, 0);
}

// A child inherits the stacks of threads that it does not have, and its own threads reuse them.
// Joining or detaching a thread of the parent by its number would hit one of those.
TEST(Threads, OfTheParentAreNoneInAForkedChild) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a thread in a child that was forked beside others";
  std::atomic<bool> over{false};
  const auto wait = [&] {
    while (!over) std::this_thread::yield();
  };
  std::array<Thread, 4> threads;
  for (Thread& thread : threads) thread = Thread::start(kRole, wait).value();
  for (int i = 0; i < 20; ++i) {
    const int status = run_in_child([&] {
      std::array<Thread, 4> own;
      for (Thread& thread : own) thread = Thread::start(kRole, [] {}).value();
      for (const Thread& thread : threads)
        if (thread.joinable() || thread.is_current()) return 1;
      threads[0].join();
      threads[1].detach();
      threads[2] = Thread();
      const Thread moved = std::move(threads[3]);
      return moved.joinable() ? 2 : 0;
    });
    ASSERT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
  }
  over = true;
}

TEST(ThreadRoom, IsThereOrAnError) {
  EXPECT_TRUE(succeeds(check_room_for_threads(8, kRole)));
  const NoThreads none;
  EXPECT_TRUE(succeeds(check_room_for_threads(0, kRole)));
  EXPECT_TRUE(
      fails_with(check_room_for_threads(1, kRole), ErrorCode::resource_exhausted, "thread"));
}

}  // namespace
}  // namespace tendon::v0::detail
