// SPDX-License-Identifier: Apache-2.0
// The slots of the pools that the tokens of a sequence get.
#include <gtest/gtest.h>

#include <vector>

#include "support/expect.hpp"
#include "worker/block_tables.hpp"

namespace engine {
namespace {

using tendon::ErrorCode;
using tendon::test::fails_with;
using tendon::test::succeeds;
using Runs = std::vector<SlotRun>;

TEST(BlockTables, ASequenceAloneIsOneRun) {
  BlockTables tables(4);
  ASSERT_TRUE(succeeds(tables.extend(7, 5)));
  EXPECT_EQ(tables.runs(7, 5), (Runs{{0, 5}}));
  ASSERT_TRUE(succeeds(tables.extend(7, 16)));
  EXPECT_EQ(tables.blocks_of(7), 1U);
  ASSERT_TRUE(succeeds(tables.extend(7, 40)));
  EXPECT_EQ(tables.blocks_of(7), 3U);
  EXPECT_EQ(tables.free_blocks(), 1U);
  EXPECT_EQ(tables.runs(7, 40), (Runs{{0, 40}}));
  EXPECT_EQ(tables.runs(7, 17), (Runs{{0, 17}}));
  EXPECT_EQ(slot_of(tables.runs(7, 40), 39), 39U);
}

TEST(BlockTables, SequencesThatGrowInTurnsHaveManyRuns) {
  BlockTables tables(6);
  for (const std::uint32_t tokens : {16U, 32U, 48U}) {
    ASSERT_TRUE(succeeds(tables.extend(1, tokens)));
    ASSERT_TRUE(succeeds(tables.extend(2, tokens)));
  }
  EXPECT_EQ(tables.runs(1, 48), (Runs{{0, 16}, {32, 16}, {64, 16}}));
  EXPECT_EQ(tables.runs(2, 41), (Runs{{16, 16}, {48, 16}, {80, 9}}));
  EXPECT_EQ(slot_of(tables.runs(2, 41), 15), 31U);
  EXPECT_EQ(slot_of(tables.runs(2, 41), 16), 48U);
}

TEST(BlockTables, WhatIsFreedIsTakenAgain) {
  BlockTables tables(3);
  ASSERT_TRUE(succeeds(tables.extend(1, 33)));
  EXPECT_TRUE(fails_with(tables.extend(2, 1), ErrorCode::resource_exhausted,
                         "needs 1 blocks more, and 0 of 3 are free"));
  tables.free(1);
  tables.free(1);
  EXPECT_EQ(tables.free_blocks(), 3U);
  EXPECT_EQ(tables.runs(1, 10), Runs{});
  ASSERT_TRUE(succeeds(tables.extend(2, 48)));
  tables.clear();
  EXPECT_EQ(tables.free_blocks(), 3U);
  EXPECT_EQ(tables.blocks_of(2), 0U);
}

}  // namespace
}  // namespace engine
