// SPDX-License-Identifier: Apache-2.0
#include "fabric/samples/sample_age.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace tendon::detail {
namespace {

using std::chrono::nanoseconds;

TEST(SampleAge, IsUnknownWithoutTheClockOfThePublisher) {
  EXPECT_EQ(age_at_most({.stamp = 1}, std::nullopt, 1000), std::nullopt);
}

TEST(SampleAge, CountsWhatIsUncertain) {
  // The publisher's clock shows 5000 while this one shows 1000.
  const ClockOffset ahead{.offset_ns = 4000, .error_ns = 50};
  EXPECT_EQ(age_at_most({.stamp = 4500}, ahead, 1000), nanoseconds(550));
  EXPECT_EQ(age_at_most({.stamp = 4500, .stamp_error = 7}, ahead, 1000), nanoseconds(557));
}

TEST(SampleAge, OfTheFutureIsNothing) {
  EXPECT_EQ(age_at_most({.stamp = 2000}, ClockOffset{.offset_ns = 0, .error_ns = 5}, 1000),
            nanoseconds(0));
}

TEST(SampleAge, IsUnknownWhereNoClockShowsTheStamp) {
  const ClockOffset same{.offset_ns = 0, .error_ns = 0};
  constexpr std::uint64_t kCentury = 3'155'760'000'000'000'000;
  EXPECT_EQ(age_at_most({.stamp = kCentury}, same, 1000), nanoseconds(0));
  EXPECT_EQ(age_at_most({.stamp = kCentury + 1}, same, 1000), std::nullopt);
  EXPECT_EQ(age_at_most({.stamp = std::numeric_limits<std::uint64_t>::max()}, same, 1000),
            std::nullopt);
}

}  // namespace
}  // namespace tendon::detail
