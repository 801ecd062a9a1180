// SPDX-License-Identifier: Apache-2.0
#include "runtime/lane_tickets.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tendon::test {
namespace {

using detail::LaneTickets;
using detail::Nonce128;
using detail::StreamLink;

/// A link that is only pointed at.
std::shared_ptr<StreamLink> make_link() {
  auto owner = std::make_shared<std::uint64_t>();
  void* const place = owner.get();
  return {std::move(owner), static_cast<StreamLink*>(place)};
}

TEST(LaneTickets, AreGoodOnce) {
  LaneTickets tickets;
  const auto link = make_link();
  const Nonce128 ticket = tickets.issue(link).value();
  EXPECT_EQ(tickets.take(ticket), link);
  EXPECT_EQ(tickets.take(ticket), nullptr);
  EXPECT_EQ(tickets.take(Nonce128{}), nullptr);
}

TEST(LaneTickets, ALinkHasOneAtATime) {
  LaneTickets tickets;
  const auto link = make_link();
  const auto other = make_link();
  const Nonce128 first = tickets.issue(link).value();
  const Nonce128 of_other = tickets.issue(other).value();
  const Nonce128 second = tickets.issue(link).value();
  EXPECT_EQ(tickets.take(first), nullptr);
  EXPECT_EQ(tickets.take(second), link);
  EXPECT_EQ(tickets.take(of_other), other);
}

TEST(LaneTickets, NoNumberOfLinksTakesThatOfAnother) {
  LaneTickets tickets;
  const auto link = make_link();
  const Nonce128 ticket = tickets.issue(link).value();
  std::vector<std::shared_ptr<StreamLink>> strangers;
  for (int i = 0; i < 2000; ++i) {
    strangers.push_back(make_link());
    (void)tickets.issue(strangers.back()).value();
  }
  EXPECT_EQ(tickets.take(ticket), link);
}

TEST(LaneTickets, GoWithTheirLink) {
  LaneTickets tickets;
  auto link = make_link();
  const std::weak_ptr<StreamLink> seen = link;
  const Nonce128 ticket = tickets.issue(link).value();
  link.reset();
  EXPECT_TRUE(seen.expired()) << "a ticket keeps no link";
  EXPECT_EQ(tickets.take(ticket), nullptr);
}

}  // namespace
}  // namespace tendon::test
