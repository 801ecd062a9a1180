// SPDX-License-Identifier: Apache-2.0
#include "group/staging.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

constexpr std::uint64_t kSize = std::uint64_t{256} << 10;

/// What a machine takes for an operation of kSize [ns].
struct Machine {
  std::uint64_t cached_ns;
  std::uint64_t streaming_ns;
};

/// Runs `count` operations on a machine; answers how many of them streamed.
int run(Staging& staging, int count, const Machine& machine,
        CollectiveOp op = CollectiveOp::all_reduce, std::uint64_t size = kSize) {
  int streamed = 0;
  for (int i = 0; i < count; ++i) {
    const auto plan = staging.plan(op, size);
    const bool streams = plan.hint == CopyHint::streaming;
    if (streams) ++streamed;
    if (plan.is_trial)
      staging.tried(op, size, plan.hint, streams ? machine.streaming_ns : machine.cached_ns);
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
  // The largest are of one class.
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

TEST(Staging, ForcedOnesAreNotTried) {
  Staging staging(CopyHint::streaming);
  EXPECT_EQ(run(staging, 10, kOneCache), 10);
  EXPECT_FALSE(staging.plan(CollectiveOp::all_reduce, kSize).is_trial);
  Staging cached(CopyHint::cached);
  EXPECT_EQ(run(cached, 10, kApart), 0);
}

}  // namespace
}  // namespace tendon::detail
