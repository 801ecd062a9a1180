// SPDX-License-Identifier: Apache-2.0
// Messages that wait for an epoch that was not entered yet.
#include "group/membership/early_words.hpp"

#include <gmock/gmock.h>

#include <vector>

namespace tendon::detail {
namespace {

using testing::HasSubstr;

constexpr GroupPlace kSelf = {3};
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

InboundMessage step(std::uint64_t epoch, std::uint64_t sequence, std::uint64_t size_bytes = 0) {
  return {
      {.kind = EnvelopeKind::collective, .epoch = epoch, .sequence = sequence}, {}, size_bytes, {}};
}
AbortWord word(std::uint64_t epoch, std::uint64_t first, std::string text) {
  return {{.kind = EnvelopeKind::abort, .from = GroupPlace{1}, .epoch = epoch, .sequence = first},
          std::move(text)};
}

TEST(EarlyWords, AnEpochGetsWhatIsItsOwnAndTheRestWaitsOrIsForgotten) {
  EarlyWords early(kSelf);
  for (const std::uint64_t epoch : {5, 7, 9, 7})
    ASSERT_TRUE(early.keep({epoch == 9 ? 2u : 1u}, step(epoch, 10 + epoch)));
  ASSERT_TRUE(early.keep(word(9, 4, "of nine")));
  const auto seven = early.take(7);
  EXPECT_FALSE(seven.abort);
  ASSERT_EQ(seven.steps.size(), 2u);
  EXPECT_EQ(seven.steps[0].place, GroupPlace{1});
  EXPECT_EQ(seven.steps[0].inbound.envelope.sequence, 17u);
  const auto nine = early.take(9);
  EXPECT_EQ(nine.steps.size(), 1u);
  ASSERT_TRUE(nine.abort);
  EXPECT_EQ(nine.abort->text, "of nine");
  EXPECT_TRUE(early.take(5).steps.empty()) << "it is long over";
}

TEST(EarlyWords, TheEarliestEndOfAnEpochCounts) {
  EarlyWords early(kSelf);
  for (const std::uint64_t first : {5, 2, 7})
    ASSERT_TRUE(early.keep(word(1, first, std::to_string(first))));
  EXPECT_EQ(early.take(1).abort->text, "2");
}

TEST(EarlyWords, StepsOfAllEpochsHaveOneLimit) {
  EarlyWords early(kSelf);
  for (std::uint64_t epoch = 1; epoch <= 4; ++epoch)
    ASSERT_TRUE(early.keep({1}, step(epoch, 10 + epoch, 100 * kMiB)));
  EXPECT_LE(early.size_bytes(), EarlyWords::kMostEarlyStepBytes);
  EXPECT_GT(early.size_bytes(), 200 * kMiB);
  // A message that did not fit ends its own epoch, and no other one.
  EXPECT_FALSE(early.take(1).abort);
  EXPECT_FALSE(early.take(2).abort);
  const auto third = early.take(3);
  ASSERT_TRUE(third.abort);
  EXPECT_EQ(third.abort->envelope.sequence, 13u);
  EXPECT_EQ(third.abort->envelope.from.in_group(), kSelf);
  EXPECT_THAT(third.abort->text, HasSubstr("256 MiB"));
  EXPECT_TRUE(third.steps.empty());
}

// They may wait in the epoch that has begun, for calls that nobody makes.
TEST(EarlyWords, WhatTheLastEpochGotCountsUntilTheNextBegins) {
  EarlyWords early(kSelf);
  ASSERT_TRUE(early.keep({1}, step(1, 1, 200 * kMiB)));
  EXPECT_EQ(early.take(1).steps.size(), 1u);
  ASSERT_TRUE(early.keep({1}, step(2, 2, 100 * kMiB)));
  EXPECT_LE(early.size_bytes(), EarlyWords::kMostEarlyStepBytes);
  EXPECT_TRUE(early.take(2).abort);
  EXPECT_EQ(early.size_bytes(), 0u);
  ASSERT_TRUE(early.keep({1}, step(3, 3, 200 * kMiB)));
  EXPECT_FALSE(early.take(3).abort);
}

TEST(EarlyWords, NobodyInventsEpochsWithoutEnd) {
  EarlyWords early(kSelf);
  for (std::uint64_t epoch = 1; epoch <= EarlyWords::kMostEarlyEpochs; ++epoch) {
    ASSERT_TRUE(early.keep({1}, step(epoch, 1)));
    ASSERT_TRUE(early.keep(word(epoch, 1, "")));
  }
  EXPECT_FALSE(early.keep({1}, step(1000, 1)));
  EXPECT_FALSE(early.keep(word(1000, 1, "")));
  EXPECT_TRUE(early.keep({1}, step(1, 2)));
  EXPECT_TRUE(early.keep(word(1, 2, "")));
}

}  // namespace
}  // namespace tendon::detail
