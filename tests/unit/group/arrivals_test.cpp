// SPDX-License-Identifier: Apache-2.0
// The members that a joining member still waits for.
#include "group/membership/arrivals.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

TEST(Arrivals, EverybodyElseIsToCome) {
  Arrivals arrivals(0, 3);
  EXPECT_EQ(arrivals.missing_ranks(), "rank 1, 2 of 3");
  arrivals.come(1);
  EXPECT_EQ(arrivals.missing_ranks(), "rank 2 of 3");
  EXPECT_FALSE(arrivals.complete());
  arrivals.come(1);  // another process, in its place
  EXPECT_FALSE(arrivals.complete());
  arrivals.come(2);
  EXPECT_TRUE(arrivals.complete());
  EXPECT_TRUE(Arrivals(0, 1).complete());
}

TEST(Arrivals, WhoIsDialledHasToAnswer) {
  Arrivals arrivals(2, 3);
  arrivals.come(0);
  arrivals.answer(1);
  EXPECT_FALSE(arrivals.complete()) << "it was not asked";
  arrivals.dial(1);
  EXPECT_TRUE(arrivals.dialled(1));
  EXPECT_EQ(arrivals.missing_ranks(), "rank 1 of 3");
  arrivals.answer(1);
  EXPECT_TRUE(arrivals.complete());
  arrivals.dial(1);  // it was lost
  EXPECT_FALSE(arrivals.complete());
}

TEST(Arrivals, WhoComesByItselfIsNotWaitedForAsOneThatWasDialled) {
  Arrivals arrivals(1, 3);
  arrivals.come(0);
  arrivals.dial(2);
  arrivals.come(2);
  EXPECT_FALSE(arrivals.dialled(2));
  EXPECT_TRUE(arrivals.complete());
}

TEST(Arrivals, WhoComesLateWaitsForThoseThatItDialled) {
  Arrivals arrivals(3, 4);
  arrivals.come(0);
  arrivals.come_late();
  EXPECT_TRUE(arrivals.late());
  EXPECT_TRUE(arrivals.complete()) << "it was told of nobody";
  arrivals.dial(2);
  EXPECT_EQ(arrivals.missing_ranks(), "rank 2 of 4");
  arrivals.answer(2);
  EXPECT_TRUE(arrivals.complete());
}

}  // namespace
}  // namespace tendon::detail
