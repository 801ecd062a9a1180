// SPDX-License-Identifier: Apache-2.0
#include "control/machine/step_ledger.hpp"

#include <gtest/gtest.h>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::StepLedger;

StepOutputs outputs(std::uint64_t schedule_id, std::uint32_t rank, std::uint64_t agreement = 0) {
  return {.schedule_id = schedule_id, .rank = {rank}, .payload = {}, .agreement = agreement};
}

TEST(StepLedger, OutputsComeFromTensorRankZeroOfTheLastStageOncePerKvRank) {
  const auto ranks_of = [](std::uint32_t tensor, std::uint32_t pipeline, std::uint32_t kv) {
    std::vector<std::uint32_t> ranks;
    const auto layout =
        ParallelLayout::make({.tensor = tensor, .pipeline = pipeline, .kv = kv}).value();
    for (const GlobalRank rank : detail::output_ranks(layout)) ranks.push_back(rank.value);
    return ranks;
  };
  EXPECT_EQ(ranks_of(1, 1, 1), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(ranks_of(2, 2, 2), (std::vector<std::uint32_t>{4, 6}));
  EXPECT_EQ(ranks_of(1, 2, 3), (std::vector<std::uint32_t>{3, 4, 5}));
}

TEST(StepLedger, HasRoomForOneStepMoreThanThereAreStages) {
  StepLedger ledger(ParallelLayout::make({.tensor = 1, .pipeline = 2, .kv = 1}).value());
  for (std::uint64_t id = 1; id <= 3; ++id) {
    ASSERT_TRUE(ledger.has_room());
    ledger.begin(id);
  }
  EXPECT_FALSE(ledger.has_room());
  EXPECT_TRUE(ledger.add(outputs(2, 1)));
  EXPECT_TRUE(ledger.has_room());
  EXPECT_EQ(ledger.in_flight(), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(ledger.uncollected(), 1U);
}

TEST(StepLedger, TakesOutputsOfItsStepsAndSendersOnce) {
  StepLedger ledger(ParallelLayout::make({.tensor = 2, .pipeline = 1, .kv = 2}).value());
  ledger.begin(7);
  EXPECT_FALSE(ledger.add(outputs(8, 0)));  // there is no such step
  EXPECT_FALSE(ledger.add(outputs(7, 1)));  // from tensor rank 1
  EXPECT_TRUE(ledger.add(outputs(7, 2)));
  EXPECT_FALSE(ledger.add(outputs(7, 2)));
  EXPECT_FALSE(ledger.is_complete(7));
  EXPECT_EQ(ledger.missing(7), (std::vector<GlobalRank>{{0}}));
  EXPECT_TRUE(ledger.add(outputs(7, 0)));
  ASSERT_TRUE(ledger.is_complete(7));
  EXPECT_EQ(ledger.collect(7).value().size(), 2U);
  EXPECT_TRUE(fails_with(ledger.collect(7), ErrorCode::invalid_argument, "step 7"));
}

TEST(StepLedger, ADifferenceBetweenRanksIsADivergenceThatNamesThem) {
  StepLedger ledger(ParallelLayout::make({.tensor = 1, .pipeline = 1, .kv = 2}).value());
  ledger.begin(1);
  EXPECT_TRUE(ledger.add(outputs(1, 0, 11)));
  EXPECT_TRUE(ledger.add(outputs(1, 1, 12)));
  EXPECT_TRUE(fails_with(ledger.collect(1), ErrorCode::divergence, "rank 1 says 12"));
}

TEST(StepLedger, WhatWasCollectedCanBePutBack) {
  StepLedger ledger(ParallelLayout::make({.tensor = 1, .pipeline = 1, .kv = 2}).value());
  ledger.begin(7);
  EXPECT_TRUE(ledger.add(outputs(7, 0, 3)));
  EXPECT_TRUE(ledger.add(outputs(7, 1, 3)));
  ledger.put_back(ledger.collect(7).value());
  EXPECT_TRUE(ledger.is_complete(7));
  EXPECT_TRUE(ledger.is_idle());
  EXPECT_EQ(ledger.uncollected(), 1U);
  EXPECT_TRUE(ledger.has_microbatch(7)) << "the outputs come behind it";
  const auto again = ledger.collect(7);
  ASSERT_TRUE(succeeds(again));
  ASSERT_EQ(again->size(), 2U);
  EXPECT_EQ((*again)[1].rank.value, 1U);
  EXPECT_FALSE(ledger.has(7));
}

}  // namespace
}  // namespace tendon::test
