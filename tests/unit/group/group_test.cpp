// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "support/group_members.hpp"

namespace tendon {
namespace {

using test::run_members;
using namespace std::chrono_literals;

class GroupOver : public testing::TestWithParam<Transport> {
 protected:
  test::GroupMembersOptions options() const { return {.transport = GetParam()}; }
};

TEST_P(GroupOver, EveryMemberKnowsItsPlace) {
  run_members(
      4,
      [](Context&, Group& group) {
        EXPECT_EQ(group.size(), 4u);
        EXPECT_EQ(group.epoch(), 1u);
        EXPECT_EQ(group.members().size(), 4u);
        EXPECT_FALSE(group.members()[group.rank().value].path.has_value());
      },
      options());
}

TEST_P(GroupOver, AllReduceAddsWhatAllHave) {
  run_members(
      3,
      [](Context&, Group& group) {
        for (const std::int64_t count : {0, 1, 5, 1000, 40'000, 300'000}) {
          Tensor mine = Tensor::zeros(DType::f32, Shape({count})).value();
          for (std::int64_t i = 0; i < count; ++i)
            mine.span<float>()[static_cast<std::size_t>(i)] =
                static_cast<float>(i % 100) + static_cast<float>(group.rank().value);
          const auto done = group.all_reduce(mine, ReduceOp::sum, 20s);
          ASSERT_TRUE(done) << done.error().message();
          for (std::int64_t i = 0; i < count; ++i)
            ASSERT_EQ(mine.item<float>({i}), static_cast<float>(3 * (i % 100) + 3)) << i;
        }
      },
      options());
}

TEST_P(GroupOver, ADeadMemberIsNamedAndTheOthersGoOn) {
  run_members(
      3,
      [](Context& context, Group& group) {
        Tensor one = Tensor::of<float>({1}, {1});
        ASSERT_TRUE(group.all_reduce(one, ReduceOp::sum, 20s));
        if (group.rank().value == 1) {
          (void)context.close(1s);
          return;
        }
        const auto failed = group.all_reduce(one, ReduceOp::sum, 20s);
        ASSERT_FALSE(failed);
        EXPECT_EQ(failed.error().code, ErrorCode::peer_lost);
        EXPECT_THAT(failed.error().detail, testing::HasSubstr("member 1"));
        const auto shrunk = group.shrink(20s);
        ASSERT_TRUE(shrunk) << shrunk.error().message();
        EXPECT_EQ(group.size(), 2u);
        one = Tensor::of<float>({1}, {1});
        const auto again = group.all_reduce(one, ReduceOp::sum, 20s);
        ASSERT_TRUE(again) << again.error().message();
        EXPECT_EQ(one.item<float>({0}), 2);
      },
      options());
}

INSTANTIATE_TEST_SUITE_P(Paths, GroupOver, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

}  // namespace
}  // namespace tendon
