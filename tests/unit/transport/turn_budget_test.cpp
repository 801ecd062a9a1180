// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/turn_budget.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace tendon::test {
namespace {

using detail::TurnBudget;
using Time = std::chrono::steady_clock::time_point;

std::uint32_t messages_of_a_turn(std::chrono::microseconds each) {
  TurnBudget turn;
  Time now;
  turn.begin();
  std::uint32_t count = 0;
  while (!turn.is_spent()) {
    now += each;
    turn.note([&] { return now; });
    ++count;
  }
  return count;
}

TEST(TurnBudget, EndsAfterSoManyMessagesOrSoMuchTime) {
  EXPECT_EQ(messages_of_a_turn(std::chrono::microseconds(0)), TurnBudget::kMostMessages);
  // 2 ms are noticed at the next look.
  EXPECT_EQ(messages_of_a_turn(std::chrono::microseconds(10)), 5 * TurnBudget::kBetweenLooks);
  EXPECT_EQ(messages_of_a_turn(std::chrono::microseconds(1000)), 2 * TurnBudget::kBetweenLooks);
}

TEST(TurnBudget, EachTurnBeginsAnew) {
  TurnBudget turn;
  for (int i = 0; i < 3; ++i) {
    turn.begin();
    for (std::uint32_t count = 0; count < TurnBudget::kMostMessages; ++count) {
      ASSERT_FALSE(turn.is_spent());
      turn.note([] { return Time(); });
    }
    ASSERT_TRUE(turn.is_spent());
  }
}

}  // namespace
}  // namespace tendon::test
