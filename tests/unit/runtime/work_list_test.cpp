// SPDX-License-Identifier: Apache-2.0
#include "runtime/work_list.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <thread>
#include <vector>

namespace tendon::detail {
namespace {

class Calls final : public Work {
 public:
  explicit Calls(std::function<bool(int)> body) : body_(std::move(body)) {}
  bool progress() override { return body_(++count_); }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::function<bool(int)> body_;
  std::atomic<int> count_{0};
};

TEST(WorkList, CallsUntilItIsFinished) {
  WorkList list;
  const auto work = std::make_shared<Calls>([](int call) { return call < 3; });
  list.add(work);
  EXPECT_FALSE(list.run());
  EXPECT_FALSE(list.run());
  EXPECT_TRUE(list.run());
  EXPECT_FALSE(list.run());
  EXPECT_EQ(work->count(), 3);
  EXPECT_TRUE(list.all().empty());
}

// As another thread does that queues work between the last look and the end.
TEST(WorkList, WhatIsAddedAgainWhileItEndsStays) {
  WorkList list;
  std::shared_ptr<Calls> work;
  work = std::make_shared<Calls>([&](int call) {
    if (call == 1) list.add(work);
    return false;
  });
  list.add(work);
  EXPECT_TRUE(list.run());
  EXPECT_EQ(list.all().size(), 1u);
  EXPECT_TRUE(list.run());
  EXPECT_EQ(work->count(), 2);
}

// Nobody is woken for it, so a thread that is about to sleep must see it.
TEST(WorkList, WhatWasNotCalledYetIsInput) {
  WorkList list;
  EXPECT_FALSE(list.has_input());
  list.add(std::make_shared<Calls>([](int) { return true; }));
  EXPECT_TRUE(list.has_input());
  list.run();
  EXPECT_FALSE(list.has_input());
}

TEST(WorkList, WhoeverIsAtItGoesOnForTheOthers) {
  WorkList list;
  std::latch begun(1);
  std::latch go_on(1);
  std::atomic<int> inside{0};
  const auto work = std::make_shared<Calls>([&](int call) {
    EXPECT_EQ(++inside, 1);
    if (call == 1) {
      begun.count_down();
      go_on.wait();
    }
    --inside;
    return true;
  });
  list.add(work);
  std::thread other([&] { list.run(); });
  begun.wait();
  EXPECT_FALSE(list.run());
  EXPECT_EQ(work->count(), 1);
  go_on.count_down();
  other.join();
  EXPECT_EQ(work->count(), 2);
}

// A thread that began its pass before the end still has the finished item in its list.
TEST(WorkList, WhatHasFinishedIsNotCalledAgain) {
  WorkList list;
  std::latch begun(1);
  std::latch go_on(1);
  const auto slow = std::make_shared<Calls>([&](int call) {
    if (call == 1) {
      begun.count_down();
      go_on.wait();
    }
    return true;
  });
  const auto finished = std::make_shared<Calls>([](int) { return false; });
  list.add(slow);
  list.add(finished);
  std::thread other([&] { list.run(); });
  begun.wait();
  EXPECT_TRUE(list.run());
  go_on.count_down();
  other.join();
  EXPECT_EQ(finished->count(), 1);
  EXPECT_EQ(list.all().size(), 1u);
}

// Work is added while there is something to do, as pipes and meshes do; some threads queue, others
// run.
TEST(WorkList, NothingQueuedIsLost) {
  WorkList list;
  std::atomic<int> queued{0};
  std::atomic<bool> registered{false};
  const auto work = std::make_shared<Calls>([&](int) {
    queued.exchange(0);
    registered = false;
    return queued != 0 && !registered.exchange(true);
  });
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> queueing{2};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          ++queued;
          if (!registered.exchange(true)) list.add(work);
        }
        --queueing;
      });
      threads.emplace_back([&] {
        while (queueing != 0) list.run();
      });
    }
    for (std::thread& thread : threads) thread.join();
    list.run();
    ASSERT_EQ(queued, 0) << "in round " << round;
  }
}

}  // namespace
}  // namespace tendon::detail
