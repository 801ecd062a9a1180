// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tendon/observe/counter.hpp>

#include "interleaved.hpp"

namespace {

using tendon::Counter;

TEST(Counter, AddsOneUnlessTold) {
  Counter counter;
  EXPECT_EQ(counter.value(), 0u);
  counter.add();
  counter.add(41);
  EXPECT_EQ(counter.value(), 42u);
}

TEST(Counter, LosesNothingBetweenThreads) {
  Counter counter;
  const auto calls = tendon_test::run_interleaved([&] { counter.add(2); });
  EXPECT_EQ(counter.value(), 2 * (calls[0] + calls[1]));
}

}  // namespace
