// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <tendon/observe/histogram.hpp>
#include <vector>

#include "interleaved.hpp"

namespace {

using tendon::Histogram;

// Expects a value within 1/64 of the exact one, and equality below 64.
void expect_near(std::uint64_t measured, std::uint64_t exact) {
  const std::uint64_t off = measured > exact ? measured - exact : exact - measured;
  EXPECT_LE(off, exact / 64) << measured << " for " << exact;
}

TEST(Histogram, EmptyAnswersZero) {
  const auto histogram = std::make_unique<Histogram>();
  EXPECT_EQ(histogram->count(), 0u);
  EXPECT_EQ(histogram->max(), 0u);
  EXPECT_EQ(histogram->percentile(50), 0u);
}

TEST(Histogram, SmallValuesAreExact) {
  const auto histogram = std::make_unique<Histogram>();
  for (std::uint64_t value = 0; value < 64; ++value) histogram->record(value);
  EXPECT_EQ(histogram->count(), 64u);
  EXPECT_EQ(histogram->percentile(0), 0u);
  EXPECT_EQ(histogram->percentile(50), 31u);
  EXPECT_EQ(histogram->percentile(100), 63u);
}

TEST(Histogram, RankIsRoundedUpOnce) {
  const auto histogram = std::make_unique<Histogram>();
  for (std::uint64_t value = 1; value <= 10; ++value) histogram->record(value);
  EXPECT_EQ(histogram->percentile(10), 1u);
  EXPECT_EQ(histogram->percentile(10.1), 2u);
  EXPECT_EQ(histogram->percentile(90), 9u);
  EXPECT_EQ(histogram->percentile(99), 10u);
  EXPECT_EQ(histogram->percentile(-5), 1u);
  EXPECT_EQ(histogram->percentile(500), 10u);
  EXPECT_EQ(histogram->percentile(std::nan("")), 1u);
}

TEST(Histogram, EveryMagnitudeHasABucket) {
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    for (const std::uint64_t value : {power - 1, power, power + power / 3}) {
      const auto histogram = std::make_unique<Histogram>();
      histogram->record(value);
      EXPECT_EQ(histogram->max(), value);
      expect_near(histogram->percentile(50), value);
    }
  }
  const auto histogram = std::make_unique<Histogram>();
  histogram->record(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(histogram->count(), 1u);
  expect_near(histogram->percentile(50), std::numeric_limits<std::uint64_t>::max());
}

TEST(Histogram, PercentilesOfRandomValuesMatchSorting) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto histogram = std::make_unique<Histogram>();
  std::vector<std::uint64_t> values(10000);
  for (auto& value : values) {
    value = random() >> (random() % 64);
    histogram->record(value);
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const auto rank = static_cast<std::size_t>(std::llround(percent * 100));
    SCOPED_TRACE(percent);
    expect_near(histogram->percentile(percent), values[rank - 1]);
  }
}

TEST(Histogram, MergeAddsCountsAndMax) {
  const auto one = std::make_unique<Histogram>();
  const auto other = std::make_unique<Histogram>();
  one->record(5);
  other->record(5);
  other->record(7);
  one->merge(*other);
  EXPECT_EQ(one->count(), 3u);
  EXPECT_EQ(one->max(), 7u);
  EXPECT_EQ(one->percentile(50), 5u);
  EXPECT_EQ(other->count(), 2u);
}

TEST(Histogram, LosesNothingBetweenThreads) {
  const auto histogram = std::make_unique<Histogram>();
  const auto calls = tendon_test::run_interleaved([&] { histogram->record(7); });
  EXPECT_EQ(histogram->count(), calls[0] + calls[1]);
}

TEST(Histogram, MaxIsThatOfAllThreads) {
  const auto histogram = std::make_unique<Histogram>();
  std::atomic<std::uint64_t> next{0};
  tendon_test::run_interleaved([&] { histogram->record(next.fetch_add(1)); });
  EXPECT_EQ(histogram->max(), next.load() - 1);
}

}  // namespace
