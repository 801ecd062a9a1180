// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_tickets.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tendon::test {
namespace {

using detail::LaneTickets;
using detail::Nonce128;
using detail::StreamLink;
using Verdict = LaneTickets::Verdict;

/// A pointer to a link that is never dereferenced.
std::shared_ptr<StreamLink> make_link() {
  auto owner = std::make_shared<std::uint64_t>();
  void* const place = owner.get();
  return {std::move(owner), static_cast<StreamLink*>(place)};
}

TEST(LaneTickets, AreGoodOnceForEachLane) {
  LaneTickets tickets;
  const auto link = make_link();
  const Nonce128 ticket = tickets.issue(link, 3).value();
  for (const std::uint32_t index : {2u, 0u, 1u}) {
    const auto taken = tickets.take(ticket, index, nullptr);
    EXPECT_EQ(taken.verdict, Verdict::joins);
    EXPECT_EQ(taken.link, link);
    EXPECT_EQ(tickets.take(ticket, index, nullptr).verdict, Verdict::twice);
  }
  EXPECT_EQ(tickets.take(Nonce128{}, 0, nullptr).verdict, Verdict::unknown);
}

TEST(LaneTickets, ALinkHasSoManyLanes) {
  LaneTickets tickets;
  const auto link = make_link();
  const Nonce128 ticket = tickets.issue(link, 2).value();
  for (const std::uint32_t index : {2u, 31u, 32u, 33u, ~0u})
    EXPECT_EQ(tickets.take(ticket, index, nullptr).verdict, Verdict::beyond) << index;
  const Nonce128 more = tickets.issue(link, 1000).value();
  EXPECT_EQ(tickets.take(more, kMaxStreamsPerLink - 1, nullptr).verdict, Verdict::joins);
  EXPECT_EQ(tickets.take(more, kMaxStreamsPerLink, nullptr).verdict, Verdict::beyond);
}

TEST(LaneTickets, OneOfAnotherLinkTakesNothingFromIt) {
  LaneTickets tickets;
  const auto link = make_link();
  const auto other = make_link();
  const Nonce128 ticket = tickets.issue(link, 1).value();
  const Nonce128 of_other = tickets.issue(other, 1).value();
  EXPECT_EQ(tickets.take(ticket, 0, other).verdict, Verdict::unknown);
  EXPECT_EQ(tickets.take(ticket, 0, link).verdict, Verdict::joins);
  EXPECT_EQ(tickets.take(of_other, 0, other).link, other);
}

TEST(LaneTickets, NoNumberOfLinksTakesThatOfAnother) {
  LaneTickets tickets;
  const auto link = make_link();
  const Nonce128 ticket = tickets.issue(link, 1).value();
  std::vector<std::shared_ptr<StreamLink>> strangers;
  for (int i = 0; i < 2000; ++i) {
    strangers.push_back(make_link());
    (void)tickets.issue(strangers.back(), 1).value();
  }
  EXPECT_EQ(tickets.take(ticket, 0, nullptr).link, link);
}

TEST(LaneTickets, GoWithTheirLink) {
  LaneTickets tickets;
  auto link = make_link();
  const std::weak_ptr<StreamLink> seen = link;
  const Nonce128 ticket = tickets.issue(link, 1).value();
  link.reset();
  EXPECT_TRUE(seen.expired()) << "a ticket keeps no link";
  EXPECT_EQ(tickets.take(ticket, 0, nullptr).verdict, Verdict::unknown);
}

}  // namespace
}  // namespace tendon::test
