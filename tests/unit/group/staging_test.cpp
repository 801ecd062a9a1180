// SPDX-License-Identifier: Apache-2.0
#include "group/boards/staging.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

constexpr std::uint64_t kSize = std::uint64_t{256} << 10;

/// The times of a machine for an operation of kSize [ns].
struct Machine {
  std::uint64_t cached_ns;
  std::uint64_t streaming_ns;
};

/// Runs `count` operations on a machine; returns how many of them streamed.
int run(Staging& staging, int count, const Machine& machine,
        CollectiveOp op = CollectiveOp::all_reduce, std::uint64_t size = kSize) {
  int streamed = 0;
  for (int i = 0; i < count; ++i) {
    const auto plan = staging.plan(op, size);
    const bool streams = plan.hint == CopyHint::streaming;
    if (streams) ++streamed;
    if (plan.is_trial)
      staging.tried(op, size, plan, streams ? machine.streaming_ns : machine.cached_ns);
  }
  return streamed;
}

constexpr Machine kOneCache{20'000, 30'000};
constexpr Machine kApart{120'000, 30'000};
constexpr auto kTrials = static_cast<int>(Staging::kFirstTrials);
constexpr auto kPeriod = static_cast<int>(Staging::kPeriod);

TEST(Staging, TriesBothWaysAndKeepsToTheFaster) {
  Staging near({});
  EXPECT_EQ(run(near, kTrials, kOneCache), kTrials / 2);
  EXPECT_EQ(run(near, kPeriod - kTrials, kOneCache), 0);
  Staging far({});
  EXPECT_EQ(run(far, kTrials, kApart), kTrials / 2);
  EXPECT_EQ(run(far, kPeriod - kTrials, kApart), kPeriod - kTrials);
}

TEST(Staging, TriesAgainAndFollowsAMachineThatChanges) {
  Staging staging({});
  run(staging, 3 * kPeriod, kOneCache);
  EXPECT_EQ(run(staging, kPeriod, kOneCache), 1) << "one trial in a period";
  run(staging, 2 * kPeriod, kApart);
  EXPECT_EQ(run(staging, kPeriod, kApart), kPeriod - 1) << "all but one trial";
  run(staging, 2 * kPeriod, kOneCache);
  EXPECT_EQ(run(staging, kPeriod, kOneCache), 1);
}

TEST(Staging, WhatIsNotClearlyFasterIsNotTaken) {
  Staging staging({});
  run(staging, kTrials, {100'000, 80'000});
  EXPECT_EQ(run(staging, kPeriod - kTrials, {100'000, 80'000}), 0);
}

TEST(Staging, EachKindAndSizeLearnsForItself) {
  Staging staging({});
  run(staging, 20, kApart);
  EXPECT_EQ(run(staging, kTrials, kOneCache, CollectiveOp::all_gather), kTrials / 2);
  EXPECT_EQ(run(staging, 10, kOneCache, CollectiveOp::all_gather), 0);
  EXPECT_EQ(run(staging, kTrials, kOneCache, CollectiveOp::all_reduce, 2 * kSize), kTrials / 2);
  EXPECT_EQ(run(staging, 10, kOneCache, CollectiveOp::all_reduce, 2 * kSize), 0);
  EXPECT_EQ(run(staging, 10, kApart), 10) << "the first one knows what it knew";
  // The largest sizes share one class.
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;
  EXPECT_EQ(run(staging, kTrials, kApart, CollectiveOp::all_reduce, kHuge), kTrials / 2);
  EXPECT_EQ(run(staging, 10, kApart, CollectiveOp::all_reduce, ~std::uint64_t{0}), 10);
}

TEST(Staging, WhereOnlySomeReadItGoesByWhatAllReduceHasLearned) {
  Staging staging({});
  EXPECT_EQ(run(staging, 10, kApart, CollectiveOp::broadcast), 0);
  run(staging, kTrials, kApart);
  EXPECT_EQ(run(staging, 10, kApart, CollectiveOp::broadcast), 10);
  EXPECT_FALSE(staging.plan(CollectiveOp::broadcast, kSize).is_trial);
}

TEST(Staging, SmallOnesStayInTheCacheUntried) {
  Staging staging({});
  for (int i = 0; i < 10; ++i) {
    const auto plan = staging.plan(CollectiveOp::all_reduce, Staging::kSmallestBytes - 1);
    EXPECT_EQ(plan.hint, CopyHint::cached);
    EXPECT_FALSE(plan.is_trial);
  }
}

/// Runs `count` operations of two members with tensors in pools; returns how many were pulled.
int run_pooled(Staging& staging, int count, const Machine& machine, std::uint64_t pull_ns,
               std::uint64_t size) {
  int pulled = 0;
  for (int i = 0; i < count; ++i) {
    const auto plan = staging.plan_pooled(size, 2);
    if (plan.pulls) ++pulled;
    const bool streams = plan.hint == CopyHint::streaming;
    const std::uint64_t shown_ns = streams ? machine.streaming_ns : machine.cached_ns;
    if (plan.is_trial)
      staging.tried(CollectiveOp::all_reduce, size, plan, plan.pulls ? pull_ns : shown_ns);
  }
  return pulled;
}

TEST(Staging, WhatLiesInAPoolIsReadInPlaceWhereThatIsFaster) {
  constexpr std::uint64_t kBelow = Staging::kPulledBytes / 4;  // of each of two
  constexpr std::uint64_t kAbove = Staging::kPulledBytes / 2;
  constexpr int kRest = kPeriod - kTrials;
  Staging shown({});
  EXPECT_EQ(run_pooled(shown, kTrials, kOneCache, 60'000, kBelow), kTrials / 3);
  EXPECT_EQ(run_pooled(shown, kRest, kOneCache, 60'000, kBelow), 0);
  EXPECT_EQ(run_pooled(shown, kPeriod, kOneCache, 60'000, kBelow), 1) << "one trial";
  Staging read({});
  EXPECT_EQ(run_pooled(read, kTrials, kOneCache, 9'000, kBelow), kTrials / 3);
  EXPECT_EQ(run_pooled(read, kRest, kOneCache, 9'000, kBelow), kRest);
  EXPECT_EQ(run_pooled(read, kPeriod, kOneCache, 9'000, kBelow), kPeriod - 2);
  // When the times are close, the size decides.
  Staging close({});
  run_pooled(close, kTrials, kOneCache, 11'000, kBelow);
  run_pooled(close, kTrials, kOneCache, 22'000, kAbove);
  EXPECT_EQ(run_pooled(close, kRest, kOneCache, 11'000, kBelow), 0);
  EXPECT_EQ(run_pooled(close, kRest, kOneCache, 22'000, kAbove), kRest);
  // Where streaming is chosen, the tensors of others are no longer read in place.
  Staging far({});
  run_pooled(far, kTrials, kApart, 90'000, kAbove);
  EXPECT_EQ(run_pooled(far, kRest, kApart, 90'000, kAbove), 0);
  EXPECT_EQ(far.plan_pooled(kAbove, 2).hint, CopyHint::cached) << "a trial";
  for (int i = 0; i < 2; ++i) (void)far.plan_pooled(kAbove, 2);
  EXPECT_EQ(far.plan_pooled(kAbove, 2).hint, CopyHint::streaming);
  // Beyond all caches there is nothing to try.
  EXPECT_FALSE(far.plan_pooled(Staging::kAlwaysPulledBytes / 2, 2).is_trial);
  EXPECT_TRUE(far.plan_pooled(Staging::kAlwaysPulledBytes / 2, 2).pulls);
}

TEST(Staging, TensorsInAndOutOfPoolsAreCountedTogether) {
  constexpr std::uint64_t kEach = Staging::kPulledBytes / 4;
  Staging one({});
  Staging other({});
  (void)one.plan(CollectiveOp::all_reduce, kEach);  // it could not be shown yet
  (void)other.plan_pooled(kEach, 2);
  for (int i = 0; i < 2 * kPeriod; ++i)
    EXPECT_EQ(one.plan_pooled(kEach, 2).pulls, other.plan_pooled(kEach, 2).pulls);
}

TEST(Staging, ForcedOnesAreNotTried) {
  Staging staging(CopyHint::streaming);
  EXPECT_EQ(run(staging, 10, kOneCache), 10);
  EXPECT_FALSE(staging.plan(CollectiveOp::all_reduce, kSize).is_trial);
  EXPECT_FALSE(staging.plan_pooled(kSize, 2).is_trial);
  EXPECT_TRUE(staging.plan_pooled(kSize, 2).pulls) << "by pull_min";
  Staging cached(CopyHint::cached);
  EXPECT_EQ(run(cached, 10, kApart), 0);
}

}  // namespace
}  // namespace tendon::detail
