// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "control/flows/flow_receiver.hpp"
#include "control/flows/flow_sender.hpp"

namespace tendon::test {
namespace {

using detail::FlowReceiver;
using detail::FlowSender;
using detail::MissingRange;
using Receiver = FlowReceiver<int>;
using Arrival = Receiver::Arrival;

FlowSender::Kept kept(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

TEST(FlowSender, NumbersFromOneAndKeepsUntilAllHaveApplied) {
  FlowSender sender;
  EXPECT_EQ(sender.next_sequence(), 1U);
  EXPECT_EQ(sender.sent(), 0U);
  sender.keep(kept("a"));
  sender.keep(kept("b"));
  sender.keep(kept("c"));
  EXPECT_EQ(sender.sent(), 3U);
  sender.applied(1);
  EXPECT_EQ(sender.first_kept(), 2U);
  ASSERT_EQ(sender.between(1, 3).size(), 2U);
  EXPECT_EQ(*sender.between(3, 3).front(), "c");
  sender.applied(3);
  EXPECT_EQ(sender.first_kept(), 4U);
  EXPECT_EQ(sender.next_sequence(), 4U);
}

TEST(FlowSender, BeyondItsCapTheOldestGoFirstButNeverTheNewest) {
  FlowSender sender(10);
  sender.keep(kept("12345"));
  sender.keep(kept("12345"));
  EXPECT_EQ(sender.first_kept(), 1U);  // at the cap
  sender.keep(kept("1"));
  EXPECT_EQ(sender.first_kept(), 2U);  // one beyond the cap
  sender.keep(kept(std::string(100, 'x')));
  EXPECT_EQ(sender.first_kept(), 4U);
}

TEST(FlowReceiver, ParksWhatIsEarlyDropsDoublesAndAsksForAHoleOnce) {
  Receiver flow;
  EXPECT_EQ(flow.take(1, 10), Arrival::in_order);
  EXPECT_EQ(flow.next(), 10);
  EXPECT_EQ(flow.take(1, 10), Arrival::doubled);
  EXPECT_EQ(flow.take(4, 40), Arrival::early);
  EXPECT_EQ(flow.missing_before_parked(), (MissingRange{.first = 2, .last = 3}));
  EXPECT_EQ(flow.missing_before_parked(), std::nullopt);
  EXPECT_EQ(flow.take(4, 40), Arrival::doubled);
  EXPECT_EQ(flow.next(), std::nullopt);
  EXPECT_EQ(flow.take(2, 20), Arrival::in_order);
  EXPECT_EQ(flow.next(), 20);
  EXPECT_EQ(flow.next(), std::nullopt);
  EXPECT_EQ(flow.take(3, 30), Arrival::in_order);
  EXPECT_EQ(flow.next(), 30);
  EXPECT_EQ(flow.next(), 40);
  EXPECT_EQ(flow.applied(), 4U);
}

TEST(FlowReceiver, WhatIsAnnouncedAndDoesNotComeForAWhileIsMissing) {
  Receiver flow;
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  EXPECT_EQ(flow.missing_after_announced(2, now), std::nullopt);  // they may be under way
  EXPECT_EQ(flow.missing_after_announced(2, now + Receiver::kUnderWay / 2), std::nullopt);
  now += Receiver::kUnderWay;
  EXPECT_EQ(flow.missing_after_announced(3, now), (MissingRange{.first = 1, .last = 2}));
  now += Receiver::kUnderWay;
  EXPECT_EQ(flow.missing_after_announced(3, now), (MissingRange{.first = 1, .last = 3}));  // again
  for (int i = 1; i <= 3; ++i) (void)flow.take(static_cast<std::uint64_t>(i), i);
  EXPECT_EQ(flow.missing_after_announced(3, now + Receiver::kUnderWay), std::nullopt);
}

TEST(FlowReceiver, ParksNoMoreThanItsLimit) {
  Receiver flow;
  for (std::uint64_t i = 0; i < kMaxParkedMessages; ++i) {
    ASSERT_EQ(flow.take(i + 2, 0), Arrival::early);
  }
  EXPECT_EQ(flow.take(kMaxParkedMessages + 2, 0), Arrival::too_early);
  EXPECT_EQ(flow.take(1, 0), Arrival::in_order);
}

/// A path that loses, doubles and reorders messages, including requests.
TEST(Flow, EveryMessageComesOnceAndInOrderOverAWayThatLosesThem) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
    FlowSender sender;
    Receiver receiver;
    std::deque<int> under_way;
    std::vector<int> got;
    std::chrono::steady_clock::time_point now{};
    const auto deliver = [&](int message) {
      if (chance(20)) return;
      under_way.push_back(message);
      if (chance(10)) under_way.push_back(message);
      if (under_way.size() > 1 && chance(20)) std::swap(under_way.front(), under_way.back());
    };
    const auto send_again = [&](std::optional<MissingRange> missing) {
      if (!missing || chance(20)) return;
      for (const auto& message : sender.between(missing->first, missing->last)) {
        deliver(std::stoi(*message));
      }
    };
    constexpr int kCount = 100;
    for (int round = 0; round < 10000 && got.size() < kCount; ++round) {
      if (sender.sent() < kCount && chance(50)) {
        const int message = static_cast<int>(sender.next_sequence());
        sender.keep(kept(std::to_string(message)));
        deliver(message);
      }
      if (!under_way.empty()) {
        const int message = under_way.front();
        under_way.pop_front();
        (void)receiver.take(static_cast<std::uint64_t>(message), message);
        while (const auto next = receiver.next()) got.push_back(*next);
        send_again(receiver.missing_before_parked());
      }
      if (round % 10 == 0) {
        now += Receiver::kUnderWay;
        send_again(receiver.missing_after_announced(sender.sent(), now));
        sender.applied(receiver.applied());
      }
    }
    ASSERT_EQ(got.size(), static_cast<std::size_t>(kCount));
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(got[static_cast<std::size_t>(i)], i + 1);
  }
}

TEST(FlowReceiver, ParksNoMoreBytesThanItMayAndTakesWhatIsInOrder) {
  Receiver receiver;
  constexpr std::uint64_t kPiece = kMaxParkedBytes / 4;
  for (std::uint64_t sequence = 2; sequence <= 5; ++sequence)
    ASSERT_EQ(receiver.take(sequence, 0, kPiece), Receiver::Arrival::early);
  EXPECT_EQ(receiver.take(6, 0, 1), Receiver::Arrival::too_early);
  EXPECT_EQ(receiver.take(6, 0, 0), Receiver::Arrival::early);
  EXPECT_EQ(receiver.take(1, 0, kPiece), Receiver::Arrival::in_order) << "it is what is missing";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(receiver.next().has_value());
  EXPECT_EQ(receiver.take(7, 0, kPiece), Receiver::Arrival::early) << "what was taken made room";
  EXPECT_EQ(receiver.take(8, 0, 2 * kPiece), Receiver::Arrival::too_early);
}

}  // namespace
}  // namespace tendon::test
