// SPDX-License-Identifier: Apache-2.0
#include "runtime/backoff.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tendon::test {
namespace {

using detail::Backoff;

TEST(Backoff, PausesGrowToALimitAndLieInTheUpperHalf) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Backoff backoff(seed);
    auto longest = Backoff::kFirst;
    for (int i = 0; i < 20; ++i) {
      const auto pause = backoff.next();
      EXPECT_GE(pause, longest / 2);
      EXPECT_LE(pause, longest);
      longest = std::min(longest * 2, Backoff::kLongest);
    }
    EXPECT_EQ(longest, Backoff::kLongest);
  }
}

TEST(Backoff, TwoThatBeginTogetherPart) {
  std::set<std::int64_t> pauses;
  for (std::uint64_t seed = 0; seed < 100; ++seed) pauses.insert(Backoff(seed).next().count());
  EXPECT_GT(pauses.size(), 50u);
}

}  // namespace
}  // namespace tendon::test
