// SPDX-License-Identifier: Apache-2.0
#include "fabric/samples/pending_gaps.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Missing = PendingGaps::Missing;

TEST(PendingGaps, WhatGoesOnForTheSameReasonIsOneGap) {
  PendingGaps gaps;
  for (std::uint64_t sequence = 1; sequence <= 16; ++sequence)
    gaps.add({sequence, sequence, GapReason::expired});
  gaps.add({17, 92, GapReason::overflow});
  gaps.add({93, 93, GapReason::expired});
  EXPECT_THAT(gaps.take(),
              ElementsAre(Missing{1, 16, GapReason::expired}, Missing{17, 92, GapReason::overflow},
                          Missing{93, 93, GapReason::expired}));
  EXPECT_THAT(gaps.take(), IsEmpty());
}

TEST(PendingGaps, ASampleBetweenDividesThem) {
  PendingGaps gaps;
  gaps.add({1, 2, GapReason::overflow});
  gaps.add({4, 5, GapReason::overflow});  // 3 was of another schema
  EXPECT_EQ(gaps.take().size(), 2u);
}

TEST(PendingGaps, AreBoundedAndForgetNoSample) {
  PendingGaps gaps;
  for (std::uint64_t sequence = 1; sequence <= 1000; ++sequence) {
    gaps.add({sequence, sequence, sequence % 2 == 0 ? GapReason::expired : GapReason::overflow});
  }
  const auto taken = gaps.take();
  ASSERT_EQ(taken.size(), PendingGaps::kMost);
  EXPECT_EQ(taken.front().first, 1u);
  EXPECT_EQ(taken.back().last, 1000u);
  for (std::size_t i = 1; i < taken.size(); ++i) EXPECT_EQ(taken[i].first, taken[i - 1].last + 1);
}

}  // namespace
}  // namespace tendon::detail
