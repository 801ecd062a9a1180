// SPDX-License-Identifier: Apache-2.0
#include "runtime/timers.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;

class Alarm final : public Timed {
 public:
  explicit Alarm(std::function<void()> then = [] {}) : then_(std::move(then)) {}
  void on_time() override {
    ++count_;
    then_();
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::function<void()> then_;
  int count_ = 0;
};

TEST(Timers, CallsOnceWhatIsDueAndLeavesTheRest) {
  Timers timers;
  const auto due = std::make_shared<Alarm>();
  const auto later = std::make_shared<Alarm>();
  const Deadline in_an_hour(1h);
  (void)timers.add(in_an_hour, later);
  EXPECT_FALSE(timers.next().has_passed());
  (void)timers.add(Deadline::now(), due);
  EXPECT_TRUE(timers.next().has_passed());
  timers.run();
  timers.run();
  EXPECT_EQ(due->count(), 1);
  EXPECT_EQ(later->count(), 0);
  EXPECT_EQ(timers.next().time_point(), in_an_hour.time_point());
}

TEST(Timers, WhatWasRemovedOrHasGoneIsNotCalled) {
  Timers timers;
  const auto removed = std::make_shared<Alarm>();
  timers.remove(timers.add(Deadline::now(), removed));
  (void)timers.add(Deadline::now(), std::make_shared<Alarm>());
  EXPECT_TRUE(timers.next().has_passed());
  timers.run();
  EXPECT_EQ(removed->count(), 0);
  EXPECT_TRUE(timers.next().is_never());
}

TEST(Timers, ATimedMayAddAnother) {
  Timers timers;
  const auto second = std::make_shared<Alarm>();
  const auto first = std::make_shared<Alarm>([&] { (void)timers.add(Deadline::now(), second); });
  (void)timers.add(Deadline::now(), first);
  timers.run();
  EXPECT_EQ(second->count(), 0);
  timers.run();
  EXPECT_EQ(second->count(), 1);
}

TEST(Timers, ClearForgetsAll) {
  Timers timers;
  const auto alarm = std::make_shared<Alarm>();
  (void)timers.add(Deadline::now(), alarm);
  timers.clear();
  timers.run();
  EXPECT_EQ(alarm->count(), 0);
}

}  // namespace
}  // namespace tendon::detail
