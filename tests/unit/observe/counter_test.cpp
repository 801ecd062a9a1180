// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tendon/observe/counter.hpp>
#include <thread>
#include <vector>

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
  constexpr int kThreads = 4;
  constexpr int kRounds = 20000;
  Counter counter;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) counter.add(2);
      });
    }
  }
  EXPECT_EQ(counter.value(), 2u * kThreads * kRounds);
}

}  // namespace
