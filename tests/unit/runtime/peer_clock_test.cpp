// SPDX-License-Identifier: Apache-2.0
#include "runtime/peer_clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <random>

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;
constexpr std::int64_t kSecond = 1'000'000'000;

/// An exchange that begins at `sent`, with a peer whose clock is `offset` ahead.
ClockExchange exchange(std::int64_t sent, std::int64_t offset, std::int64_t there,
                       std::int64_t back) {
  constexpr std::int64_t kWork = 300;
  return {sent, sent + there + offset, sent + there + kWork + offset, sent + there + kWork + back};
}

TEST(PeerClock, KnowsNothingBeforeTheFirstExchange) { EXPECT_FALSE(PeerClock().offset(0)); }

TEST(PeerClock, IsExactWhereBothWaysTakeTheSameTime) {
  PeerClock clock;
  const ClockExchange even = exchange(kSecond, -5000, 2000, 2000);
  clock.add(even);
  const auto offset = clock.offset(even.received).value();
  EXPECT_EQ(offset.offset_ns, -5000);
  EXPECT_EQ(offset.error_ns, 2001) << "half of the round trip, and what was rounded";
}

TEST(PeerClock, GoesByTheExchangeWithTheLeastRoundTrip) {
  PeerClock clock;
  clock.add(exchange(kSecond, 700, 1000, 90'000));
  clock.add(exchange(kSecond + 1000, 700, 1500, 1500));
  clock.add(exchange(kSecond + 2000, 700, 80'000, 1000));
  EXPECT_EQ(clock.offset(kSecond + 100'000)->offset_ns, 700);
}

TEST(PeerClock, IsSurerOfAYoungExchangeThanOfAnOldOne) {
  PeerClock clock;
  clock.add(exchange(kSecond, 0, 10'000, 10'000));
  const std::int64_t later = 1001 * kSecond;
  EXPECT_GE(clock.offset(later)->error_ns, 100'000'000) << "100 ppm of 1000 s";
  clock.add(exchange(later, 40'000'000, 500'000, 500'000));
  EXPECT_EQ(clock.offset(later + 1'000'300)->offset_ns, 40'000'000);
}

TEST(PeerClock, IsAskedAgainOnceItWasAsked) {
  PeerClock clock;
  EXPECT_FALSE(clock.is_due(1000 * kSecond)) << "nobody wants to know";
  clock.note_asked(kSecond);
  EXPECT_FALSE(clock.is_due(5 * kSecond - 1));
  EXPECT_TRUE(clock.is_due(5 * kSecond));
  clock.note_asked(5 * kSecond);
  EXPECT_FALSE(clock.is_due(5 * kSecond));
}

TEST(PeerClock, ForgetsBeyondItsLastExchanges) {
  PeerClock clock;
  clock.add(exchange(kSecond, 1, 100, 100));
  for (std::size_t i = 0; i < PeerClock::kExchanges; ++i)
    clock.add(exchange(2 * kSecond, 2, 5000, 5000));
  EXPECT_EQ(clock.offset(2 * kSecond)->offset_ns, 2);
}

TEST(PeerClock, TheRoundTripIsTheLeastOfThoseThatCount) {
  PeerClock clock;
  EXPECT_FALSE(clock.round_trip());
  clock.add({.sent = 100, .arrived = 1000, .returned = 1010, .received = 160});
  clock.add({.sent = 200, .arrived = 1100, .returned = 1100, .received = 230});
  clock.add({.sent = 300, .arrived = 1200, .returned = 1200, .received = 390});
  EXPECT_EQ(clock.round_trip(), 30ns);
  for (std::size_t i = 0; i < PeerClock::kExchanges; ++i)
    clock.add({.sent = 400, .arrived = 1300, .returned = 1300, .received = 440});
  EXPECT_EQ(clock.round_trip(), 40ns);
}

TEST(PeerClock, LeavesOutWhatNoExchangeCanBe) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  PeerClock clock;
  clock.add({.sent = 100, .arrived = 50, .returned = 40, .received = 200});   // returned before it
                                                                              // arrived
  clock.add({.sent = 100, .arrived = 50, .returned = 250, .received = 200});  // the stay there
                                                                              // exceeds the round
                                                                              // trip
  clock.add({.sent = 100, .arrived = kLeast, .returned = kMost, .received = 200});
  clock.add({.sent = 100, .arrived = kMost, .returned = kMost, .received = 200});
  clock.add({.sent = -1, .arrived = 1, .returned = 1, .received = 2});
  EXPECT_FALSE(clock.offset(300));
}

// The promise: the true offset lies within the error, however unlike the two ways are.
TEST(PeerClock, TheErrorCoversTheTruth) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<std::int64_t> way(0, 5'000'000);
  std::uniform_int_distribution<std::int64_t> any_offset(-kSecond, kSecond);
  for (int round = 0; round < 200; ++round) {
    PeerClock clock;
    const std::int64_t truth = any_offset(random);
    std::int64_t now = 10 * kSecond;
    for (int i = 0; i < 12; ++i) {
      const ClockExchange one = exchange(now, truth, way(random), way(random));
      clock.add(one);
      now = one.received;
      const auto offset = clock.offset(now).value();
      ASSERT_LE(std::abs(offset.offset_ns - truth), offset.error_ns);
    }
  }
}

}  // namespace
}  // namespace tendon::detail
