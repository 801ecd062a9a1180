// SPDX-License-Identifier: Apache-2.0
// The group that rank 0 and the processes that reach it make.
#include "group/membership/first_group.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

constexpr std::uint64_t kOwn = 5;
constexpr std::uint64_t kBefore = 7;
constexpr std::uint64_t kOther = 8;

TEST(FirstGroup, IsANewOneWhereNobodyComesFromOne) {
  FirstGroup group;
  EXPECT_EQ(group.id(), 0u);
  group.begin(kOwn);
  group.come(1, 0);
  EXPECT_EQ(group.id(), kOwn);
  EXPECT_TRUE(group.survivors().none());
}

TEST(FirstGroup, IsWhatRank0Says) {
  FirstGroup group;
  group.learn(kBefore);
  EXPECT_EQ(group.id(), kBefore);
}

TEST(FirstGroup, IsThatOfTheSurvivors) {
  FirstGroup group;
  group.begin(kOwn);
  group.come(1, 0);
  EXPECT_TRUE(group.admits(kBefore));
  group.come(2, kBefore);
  EXPECT_EQ(group.id(), kBefore);
  EXPECT_TRUE(group.survivors().test(2));
  EXPECT_EQ(group.survivors().count(), 1u);
  EXPECT_TRUE(group.admits(0));
  EXPECT_TRUE(group.admits(kBefore));
  EXPECT_FALSE(group.admits(kOther));
}

TEST(FirstGroup, EndsWithItsLastSurvivor) {
  FirstGroup group;
  group.begin(kOwn);
  group.come(1, kBefore);
  group.come(2, kBefore);
  group.come(1, 0);  // another process, in its place
  EXPECT_EQ(group.id(), kBefore);
  EXPECT_FALSE(group.admits(kOther));
  group.come(2, 0);
  EXPECT_EQ(group.id(), kOwn);
  EXPECT_TRUE(group.admits(kOther));
  group.come(2, kOther);
  EXPECT_EQ(group.id(), kOther);
}

}  // namespace
}  // namespace tendon::detail
