// SPDX-License-Identifier: Apache-2.0
// Which process is at a place, and for which place a loss is reported.
#include "group/membership/occupants.hpp"

#include <gmock/gmock.h>

#include <memory>

#include "support/peerless_link.hpp"

namespace tendon::detail {
namespace {

using testing::IsEmpty;
using testing::Optional;

const Error kGone{ErrorCode::peer_lost, "test", "gone"};

std::shared_ptr<MemberChannel> new_channel() {
  return std::make_shared<MemberChannel>(nullptr, std::make_shared<test::PeerlessLink>(), 1,
                                         std::weak_ptr<ChannelOwner>());
}

TEST(Occupants, AChannelIsKnownByItsPlace) {
  Occupants occupants(3);
  const auto channel = new_channel();
  EXPECT_EQ(occupants.place_of(*channel), std::nullopt);
  EXPECT_EQ(occupants.put(2, channel), nullptr);
  EXPECT_THAT(occupants.place_of(*channel), Optional(2u));
  EXPECT_EQ(occupants.at(2), channel);
  EXPECT_TRUE(occupants.here(2));
  EXPECT_FALSE(occupants.here(1));
  EXPECT_THAT(occupants.lost(), IsEmpty());
}

TEST(Occupants, WhoIsLostIsNotHereAndKeepsItsPlace) {
  Occupants occupants(3);
  const auto channel = new_channel();
  (void)occupants.put(1, channel);
  channel->on_link_failed(kGone);
  EXPECT_FALSE(occupants.here(1));
  EXPECT_THAT(occupants.lose(*channel, kGone, Absence::assumed), Optional(1u));
  EXPECT_THAT(occupants.lose(*channel, kGone, Absence::proved), Optional(1u));
  ASSERT_TRUE(occupants.lost().contains(1));
  EXPECT_EQ(occupants.lost().at(1).channel, channel);
  EXPECT_EQ(occupants.lost().at(1).how, Absence::proved) << "the last word counts";
  EXPECT_EQ(occupants.at(1), channel);
  occupants.forget_loss(1);
  EXPECT_THAT(occupants.lost(), IsEmpty());
}

TEST(Occupants, TheLossOfWhoWasReplacedIsOfThePlaceAndNotOfWhoIsThere) {
  Occupants occupants(3);
  auto before = new_channel();
  (void)occupants.put(1, before);
  (void)occupants.lose(*before, kGone, Absence::assumed);
  const auto newcomer = new_channel();
  EXPECT_EQ(occupants.put(1, newcomer), before);
  EXPECT_THAT(occupants.lost(), IsEmpty());
  EXPECT_THAT(occupants.lose(*before, kGone, Absence::proved), Optional(1u));
  EXPECT_THAT(occupants.lost(), IsEmpty());
  EXPECT_TRUE(occupants.here(1));
  EXPECT_EQ(occupants.lose(*new_channel(), kGone, Absence::proved), std::nullopt)
      << "it never had a place";
}

// The channel is lost before its place is known.
TEST(Occupants, WhoIsLostAlreadyIsKnownToBe) {
  Occupants occupants(3);
  const auto channel = new_channel();
  channel->on_link_failed(kGone);
  (void)occupants.put(2, channel);
  EXPECT_FALSE(occupants.here(2));
  ASSERT_TRUE(occupants.lost().contains(2));
  EXPECT_EQ(occupants.lost().at(2).error.code, ErrorCode::peer_lost);
}

TEST(Occupants, AfterTheEndOnlyThePlacesThatWereLostAreKnown) {
  Occupants occupants(3);
  const auto lost = new_channel();
  const auto other = new_channel();
  (void)occupants.put(0, lost);
  (void)occupants.put(2, other);
  (void)occupants.lose(*lost, kGone, Absence::proved);
  EXPECT_THAT(occupants.clear(), testing::ElementsAre(lost, nullptr, other));
  for (const std::uint32_t place : {0u, 1u, 2u}) EXPECT_EQ(occupants.at(place), nullptr);
  EXPECT_EQ(occupants.place_of(*other), std::nullopt);
  ASSERT_TRUE(occupants.lost().contains(0));
  EXPECT_EQ(occupants.lost().at(0).channel, nullptr);
  EXPECT_EQ(lost.use_count(), 1);
}

}  // namespace
}  // namespace tendon::detail
