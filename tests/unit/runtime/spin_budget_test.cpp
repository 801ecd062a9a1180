// SPDX-License-Identifier: Apache-2.0
#include "runtime/spin_budget.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/wake_up_cost.hpp"

namespace tendon::v0::detail {
namespace {

using std::chrono::microseconds;
using namespace std::chrono_literals;

constexpr microseconds kWakeUp = 40us;
constexpr microseconds kBrief = 4us;
constexpr microseconds kLong = 2 * kWakeUp;

/// One end of a pipe: how long it waits for an event that arrives `after` its wait began.
microseconds wait_for(SpinBudget& budget, microseconds after) {
  const microseconds spun = budget.rests() ? 0us : budget.now();
  if (after <= spun) {
    budget.spun();
    return after;
  }
  const microseconds whole = after + kWakeUp;
  budget.slept(whole - spun);
  return whole;
}

TEST(SpinBudget, SpinsForAMomentAtFirst) { EXPECT_EQ(SpinBudget(kWakeUp).now(), kBrief); }

// A brief spin never meets the answer, so hits alone would teach nothing.
TEST(SpinBudget, AnAnswerBeyondTheBriefSpinIsSoonSpunFor) {
  SpinBudget budget(kWakeUp);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(wait_for(budget, 13us), 13us + kWakeUp);
  EXPECT_EQ(budget.now(), kLong);
  EXPECT_EQ(wait_for(budget, 13us), 13us);
}

// Each waits for the other's waking, so neither would ever find an answer within its own.
TEST(SpinBudget, TwoThatWakeEachOtherComeToSpin) {
  SpinBudget one(kWakeUp);
  SpinBudget other(kWakeUp);
  constexpr microseconds kWork = 7us;
  microseconds of_other = kWork + kWakeUp;
  microseconds of_one{};
  for (int i = 0; i < 10; ++i) {
    // One side's sleep becomes the other side's wait.
    of_one = wait_for(one, kWork + (other.now() < of_other ? kWakeUp : 0us));
    of_other = wait_for(other, kWork + (of_one > one.now() ? kWakeUp : 0us));
  }
  EXPECT_EQ(of_one, kWork);
  EXPECT_EQ(of_other, kWork);
}

// Where others want the CPUs, threads that sleep are woken before those that yield.
TEST(SpinBudget, AfterEachLossOfTheCpuTwiceAsManyWaitsAreBrief) {
  SpinBudget budget(kWakeUp);
  const auto brief_waits = [&] {
    int count = 0;
    for (; !budget.is_long() && count < 10'000; ++count) {
      EXPECT_EQ(budget.now(), kBrief);
      wait_for(budget, 13us);
    }
    return count;
  };
  EXPECT_EQ(brief_waits(), 3);
  for (const int penalty : {64, 128, 256, 512, 1024, 2048, 4096, 4096}) {
    for (int i = 0; i < 128; ++i) wait_for(budget, 10'000us);  // the losses are not frequent
    budget.lost_cpu();
    wait_for(budget, 10'000us);  // a late one changes nothing
    EXPECT_EQ(brief_waits(), penalty + 3);
  }
  for (int i = 0; i < 4096; ++i) wait_for(budget, 13us);
  budget.lost_cpu();
  EXPECT_EQ(brief_waits(), 64 + 3) << "long spins that end well are remembered too";
}

/// Counts the following waits that sleep at once.
int rests_of(SpinBudget& budget) {
  int count = 0;
  for (; budget.rests(); ++count) budget.slept(13us + kWakeUp);
  return count;
}

TEST(SpinBudget, AfterFrequentLossesWaitsSleepAtOnce) {
  SpinBudget budget(kWakeUp);
  budget.lost_cpu();
  EXPECT_EQ(rests_of(budget), 0) << "the first one may be the last";
  for (const int rest : {16, 32, 64, 128, 256, 512, 1024, 1024}) {
    for (int i = 0; i < 100; ++i) wait_for(budget, 10us);
    budget.lost_cpu();
    EXPECT_EQ(rests_of(budget), rest);
  }
  for (int i = 0; i < 128; ++i) wait_for(budget, 10us);
  budget.lost_cpu();
  EXPECT_EQ(rests_of(budget), 0) << "a hundred waits went well";
  budget.lost_cpu();
  EXPECT_EQ(rests_of(budget), 16) << "it begins anew";
}

TEST(SpinBudget, WhatComesLateIsNotSpunFor) {
  SpinBudget budget(kWakeUp);
  for (const microseconds after : {1'000us, 10'000us, 121us}) {
    for (int i = 0; i < 10; ++i) {
      wait_for(budget, after);
      EXPECT_EQ(budget.now(), kBrief);
    }
  }
}

TEST(SpinBudget, LateAnswersAndNoneEndTheLongSpin) {
  for (const bool comes : {true, false}) {
    SpinBudget budget(kWakeUp);
    for (int i = 0; i < 100; ++i) wait_for(budget, 1us);
    ASSERT_EQ(budget.now(), kLong);
    for (int i = 0; i < 3; ++i) {
      if (comes)
        wait_for(budget, 1ms);
      else
        budget.missed();
    }
    EXPECT_EQ(budget.now(), kBrief);
  }
}

TEST(SpinBudget, OneLateAnswerAmongMoreThatComeSoonDoesNotEndIt) {
  SpinBudget budget(kWakeUp);
  for (int i = 0; i < 100; ++i) {
    wait_for(budget, i % 4 == 3 ? 1ms : 20us);
    if (i > 20) {
      EXPECT_EQ(budget.now(), kLong) << i;
    }
  }
}

TEST(WakeUpCost, IsOneNumberWithinItsBounds) {
  const microseconds cost = wake_up_cost();
  EXPECT_GE(cost, 10us);
  EXPECT_LE(cost, 60us);
  EXPECT_EQ(wake_up_cost(), cost);
}

}  // namespace
}  // namespace tendon::v0::detail
