// SPDX-License-Identifier: Apache-2.0
#include "runtime/backoff.hpp"

#include <gtest/gtest.h>

#include <set>

namespace tendon::test {
namespace {

using detail::Backoff;

TEST(Backoff, PausesGrowToALimitAndLieInTheUpperHalf) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Backoff::Bounds bounds = seed % 2 == 0 ? Backoff::kAtTheDoor : Backoff::kPeer;
    Backoff backoff(seed, bounds);
    auto longest = bounds.first;
    for (int i = 0; i < 20; ++i) {
      const auto pause = backoff.next();
      EXPECT_GE(pause, longest / 2);
      EXPECT_LE(pause, longest);
      longest = std::min(longest * 2, bounds.longest);
    }
    EXPECT_EQ(longest, bounds.longest);
  }
}

TEST(Backoff, TwoThatBeginTogetherPart) {
  std::set<std::int64_t> pauses;
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    pauses.insert(Backoff(seed, Backoff::kPeer).next().count());
  EXPECT_GT(pauses.size(), 50u);
}

}  // namespace
}  // namespace tendon::test
