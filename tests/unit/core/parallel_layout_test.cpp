// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <tendon/core/parallel_layout.hpp>
#include <vector>

#include "support/expect.hpp"

namespace tendon {
namespace {

using test::fails_with;
using Groups = std::vector<std::vector<std::uint32_t>>;

ParallelLayout layout(std::uint32_t tensor, std::uint32_t pipeline, std::uint32_t kv) {
  return ParallelLayout::make({.tensor = tensor, .pipeline = pipeline, .kv = kv}).value();
}

std::vector<std::uint32_t> numbers(const std::vector<GlobalRank>& group) {
  std::vector<std::uint32_t> members;
  for (const GlobalRank rank : group) members.push_back(rank.value);
  return members;
}
Groups numbers(const std::vector<std::vector<GlobalRank>>& groups) {
  Groups lists;
  for (const auto& group : groups) lists.push_back(numbers(group));
  return lists;
}

TEST(ParallelLayout, EachGroupHasTheMembersThatTheFormulaSays) {
  const ParallelLayout cube = layout(2, 2, 2);
  EXPECT_EQ(numbers(cube.tensor_groups()), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(numbers(cube.pipeline_groups()), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(numbers(cube.kv_groups()), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));

  const ParallelLayout deep = layout(2, 4, 2);
  EXPECT_EQ(numbers(deep.kv_groups()),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(numbers(deep.pipeline_groups()),
            (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));

  const ParallelLayout long_context = layout(1, 2, 3);
  EXPECT_EQ(numbers(long_context.kv_groups()), (Groups{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(numbers(long_context.pipeline_groups()), (Groups{{0, 3}, {1, 4}, {2, 5}}));
}

TEST(ParallelLayout, APlaceHasOneRankAndIsInOneGroupOfEachKind) {
  const ParallelLayout world = layout(3, 4, 2);
  ASSERT_EQ(world.world_size(), 24u);
  for (std::uint32_t rank = 0; rank < 24; ++rank) {
    const ParallelCoordinates place = world.place_of({rank}).value();
    EXPECT_EQ(world.rank_of(place).value(), GlobalRank{rank});
    const auto in_one = [&](const Groups& groups, const std::vector<GlobalRank>& own,
                            std::uint32_t at) {
      EXPECT_EQ(own[at], GlobalRank{rank});
      EXPECT_EQ(std::count(groups.begin(), groups.end(), numbers(own)), 1);
    };
    in_one(numbers(world.tensor_groups()), world.tensor_group_of({rank}).value(), place.tensor);
    in_one(numbers(world.pipeline_groups()), world.pipeline_group_of({rank}).value(),
           place.pipeline);
    in_one(numbers(world.kv_groups()), world.kv_group_of({rank}).value(), place.kv);
  }
}

TEST(ParallelLayout, LayersGoToStagesInIntegers) {
  EXPECT_EQ(layout(1, 22, 1).stage_of(30, 44).value(), 15u) << "0.5 * 30 is 14.99... to some";
  for (const std::uint32_t stages : {1u, 2u, 3u, 7u, 22u}) {
    const ParallelLayout world = layout(2, stages, 1);
    for (const std::uint32_t layers : {1u, 2u, 22u, 44u, 61u, 80u}) {
      std::uint32_t next = 0;
      for (std::uint32_t stage = 0; stage < stages; ++stage) {
        const LayerRange range = world.layers_of(stage, layers).value();
        EXPECT_EQ(range.first, next) << "no layer twice, none left out";
        next = range.last;
        EXPECT_LE(range.last - range.first, (layers + stages - 1) / stages);
        EXPECT_GE(range.last - range.first, layers / stages);
        for (std::uint32_t layer = range.first; layer < range.last; ++layer)
          EXPECT_EQ(world.stage_of(layer, layers).value(), stage);
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(ParallelLayout, RefusesWhatIsNoPlace) {
  EXPECT_TRUE(fails_with(ParallelLayout::make({.tensor = 0}), ErrorCode::invalid_argument,
                         "tensor is 0; each size is at least 1"));
  EXPECT_TRUE(fails_with(ParallelLayout::make({.tensor = 1u << 16, .pipeline = 1u << 16}),
                         ErrorCode::invalid_argument, "pipeline is 65536"));
  EXPECT_EQ(ParallelLayout::make({.tensor = 1u << 10, .kv = 1u << 10}).value().world_size(),
            ParallelLayout::kMaxWorldSize);
  const ParallelLayout world = layout(2, 3, 4);
  EXPECT_TRUE(fails_with(world.place_of({24}), ErrorCode::invalid_argument, "0 to 23"));
  EXPECT_TRUE(fails_with(world.rank_of({.tensor = 2}), ErrorCode::invalid_argument, "0 to 1"));
  EXPECT_TRUE(fails_with(world.rank_of({.pipeline = 3}), ErrorCode::invalid_argument, "pipeline"));
  EXPECT_TRUE(fails_with(world.rank_of({.kv = 4}), ErrorCode::invalid_argument, "kv"));
  EXPECT_TRUE(fails_with(world.kv_group_of({24}), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(world.stage_of(44, 44), ErrorCode::invalid_argument, "0 to 43"));
  EXPECT_TRUE(fails_with(world.stage_of(0, 0), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(world.layers_of(3, 44), ErrorCode::invalid_argument, "0 to 2"));
}

}  // namespace
}  // namespace tendon
