// SPDX-License-Identifier: Apache-2.0
// A thread waits for events that no descriptor signals: it spins, announces its sleep, and sleeps
// until there is a reason to look again.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/context_core.hpp"
#include "support/expect.hpp"
#include "support/sleeping_thread.hpp"

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Longer than anybody spins without a reason.
constexpr auto kLongerThanASpin = 20ms;

Context context_that(WaitPolicy policy) { return Context::create({.wait_policy = policy}).value(); }

bool spins(const Context& context) {
  return context.describe().find("cpus: 1\n") == std::string::npos;
}

class WaitForFlags : public testing::Test {
 protected:
  // Waits as a collective does for the lines of others.
  template <class F, class G>
  bool wait(Deadline deadline, F attempt, G announce) {
    if (core_->spin_for_flags(deadline, attempt, &moves_)) return true;
    announce();
    return core_->wait(nullptr, deadline, attempt, &moves_);
  }

  Context context_ = context_that(WaitPolicy::latency);
  const std::shared_ptr<ContextCore> core_ = ContextCore::of(context_);
  Progression moves_;
};

// Only a thread that yields may look more than once there, because the others need the CPU.
TEST(Crowds, YieldBetweenLooksOnOneCpu) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const Context context = context_that(WaitPolicy::balanced);
  Progression progression;
  for (const Crowd crowd : {Crowd::fits, Crowd::shares_cpus}) {
    progression.crowd = crowd;
    int looks = 0;
    const bool came = ContextCore::of(context)->spin_for_flags(
        Deadline::never(), [&] { return ++looks == 3; }, &progression);
    EXPECT_EQ(came, crowd == Crowd::shares_cpus);
    EXPECT_EQ(looks, crowd == Crowd::shares_cpus ? 3 : 0);
  }
  EXPECT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

// Repeated, because a thread that stops spinning must leave room for the next.
TEST_F(WaitForFlags, WhatMovesIsSpunForHoweverLongItTakes) {
  if (!spins(context_)) GTEST_SKIP() << "one core: nobody spins";
  for (int again = 0; again < 40; ++again) {
    const auto begin = Clock::now();
    bool announced = false;
    int looks = 0;
    EXPECT_TRUE(wait(
        Deadline::never(),
        [&] {
          ++moves_.moves;
          return ++looks > 2 && Clock::now() - begin > (again == 0 ? kLongerThanASpin : 0ms);
        },
        [&] { announced = true; }));
    EXPECT_FALSE(announced) << "time " << again;
  }
}

TEST_F(WaitForFlags, TheDeadlineEndsASpinThatMovesForEver) {
  const auto begin = Clock::now();
  const Deadline deadline(50ms);
  EXPECT_FALSE(wait(
      deadline,
      [&] {
        ++moves_.moves;
        return Clock::now() - begin > 20s;
      },
      [] {}));
  EXPECT_TRUE(deadline.has_passed());
}

TEST_F(WaitForFlags, WhatMovesAfterTheAnnouncementIsSpunForAgain) {
  if (!spins(context_)) GTEST_SKIP() << "one core: nobody spins";
  bool announced = false;
  int looks = 0;
  EXPECT_TRUE(wait(
      Deadline::never(),
      [&] {
        if (announced) ++moves_.moves;
        return announced && ++looks == 100'000;  // nobody wakes it in between
      },
      [&] { announced = true; }));
}

TEST_F(WaitForFlags, WhatHasMovedOnceLetsItSleepAgain) {
  std::atomic<bool> announced{false};
  std::atomic<bool> over{false};
  std::atomic<pid_t> waiting{0};
  std::thread waiter([&] {
    waiting = gettid();
    int looks = 0;
    EXPECT_TRUE(wait(
        Deadline::never(),
        [&] {
          // Moves at the third look, right before the sleep.
          if (announced && ++looks == 3) ++moves_.moves;
          return over.load();
        },
        [&] { announced = true; }));
  });
  EXPECT_TRUE(test::eventually([&] { return moves_.moves == 1; }));
  EXPECT_TRUE(test::falls_asleep(waiting));
  over = true;
  core_->wake_others();
  waiter.join();
}

// The event arrives between a look of the waiting thread and its sleep, for each of the looks.
TEST_F(WaitForFlags, WhatComesRightAfterALookIsNotSleptOver) {
  for (int which = 1; which <= 10; ++which) {
    bool come = false;
    bool announced = false;
    int looks = 0;
    EXPECT_TRUE(wait(
        Deadline::never(),
        [&] {
          if (!announced || come) return come;
          come = ++looks == which;
          core_->wake_others();
          return false;
        },
        [&] { announced = true; }));
  }
}

// Only has_input() shows its input: no descriptor wakes anybody.
class Countdown final : public Work {
 public:
  bool progress() override { return ++count_ < kCount; }
  [[nodiscard]] bool has_input() const noexcept override { return true; }
  [[nodiscard]] bool over() const { return count_ >= kCount; }

 private:
  static constexpr int kCount = 1000;
  std::atomic<int> count_{0};
};

TEST_F(WaitForFlags, AWorkThatHasInputIsNotSleptOver) {
  const auto work = std::make_shared<Countdown>();
  core_->add_work(work);
  EXPECT_TRUE(wait(
      Deadline::never(), [&] { return work->over(); }, [] {}));
}

TEST(ManualWork, AWorkThatHasInputKeepsTheUserFromSleeping) {
  Context context = Context::create({.progress = Progress::manual}).value();
  const auto work = std::make_shared<Countdown>();
  ContextCore::of(context)->add_work(work);
  while (!work->over()) {
    EXPECT_FALSE(context.arm());
    context.progress();
  }
  EXPECT_TRUE(test::eventually([&] { return context.arm(); }, [&] { context.progress(); }));
}

// The service thread was in the epoll before the caller, and one ring wakes one of the two.
TEST(Waiting, TheServiceThreadRunsCallbacksWhileACallerSleepsInTheEpoll) {
  Context context = context_that(WaitPolicy::blocking);
  const std::shared_ptr<ContextCore> core = ContextCore::of(context);
  for (int again = 0; again < 10; ++again) {
    std::atomic<bool> over{false};
    std::atomic<pid_t> waiting{0};
    std::thread waiter([&] {
      waiting = gettid();
      core->wait(nullptr, Deadline::never(), [&] { return over.load(); });
    });
    EXPECT_TRUE(test::eventually([&] { return waiting != 0 && test::is_asleep(waiting); }));
    std::atomic<bool> called{false};
    core->schedule([&] { called = true; });
    EXPECT_TRUE(test::eventually([&] { return called.load(); })) << "time " << again;
    over = true;
    core->wake_others();
    waiter.join();
  }
}

}  // namespace
}  // namespace tendon::detail
