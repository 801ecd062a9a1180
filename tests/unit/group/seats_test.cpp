// SPDX-License-Identifier: Apache-2.0
// Which process has which place, while processes leave and others take their places.
#include "group/epochs/seats.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "support/group_cores.hpp"

namespace tendon::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using News = Seats::News;

/// This member at place 0, others at 1 and 2.
class ThreePlaces : public testing::Test {
 protected:
  static constexpr std::uint32_t kPlaces = 3;

  void SetUp() override {
    members_.join();
    for (std::uint32_t place = 1; place < kPlaces; ++place) come(place);
    View view{1, {}};
    for (std::uint32_t place = 0; place < kPlaces; ++place) view.members.set(place);
    seats_ = std::make_unique<Seats>(GroupPlace{0}, kPlaces, view, Minority::refuse,
                                     std::chrono::milliseconds(50),
                                     [this](GroupPlace place) { return mesh_[place.value]; });
    now_.view = 1;
    now_.places = {GroupPlace{0}, GroupPlace{1}, GroupPlace{2}};
    now_.channels = {mesh_[0], mesh_[1], mesh_[2]};
  }
  /// Puts a silent process in that place.
  std::shared_ptr<MemberChannel> come(std::uint32_t place) {
    const auto& core = members_.cores[0];
    mesh_[place] = std::make_shared<MemberChannel>(
        core->context(), core->epoch()->channels[{1}]->link().shared_from_this(), ++pipe_,
        std::weak_ptr<ChannelOwner>());
    return mesh_[place];
  }
  static Seats::Loss dead(std::shared_ptr<MemberChannel> channel, Absence how = Absence::proved) {
    return {{ErrorCode::peer_lost, "test", "it died"}, std::move(channel), how};
  }
  static Seats::Loss left(std::shared_ptr<MemberChannel> channel) {
    return {{ErrorCode::end_of_stream, "test", "it left"}, std::move(channel), Absence::proved};
  }
  News lose(std::uint32_t place, const Seats::Loss& loss) {
    const News news = seats_->note({place}, loss, now_);
    if (news != News::none) seats_->leave_out({place}, loss, now_);
    return news;
  }
  /// The others agree to the proposal of this member, which leads.
  void agree(std::initializer_list<std::uint32_t> members) {
    AgreementMessage accept;
    for (const auto& [to, message] : seats_->take_outgoing())
      if (message.kind == AgreementMessage::Kind::propose) accept.ballot = message.ballot;
    accept.kind = AgreementMessage::Kind::accept;
    accept.epoch = seats_->agreement().view().epoch;
    for (const std::uint32_t place : members) seats_->hear({place}, accept);
  }
  bool is_member(std::uint32_t place) const { return seats_->agreement().view().members[place]; }
  bool is_absent(std::uint32_t place) const { return seats_->agreement().absent()[place]; }

  test::GroupCores members_{2};
  std::uint32_t pipe_ = 100;
  std::vector<std::shared_ptr<MemberChannel>> mesh_{kPlaces};
  std::unique_ptr<Seats> seats_;
  Epoch now_;
};

TEST_F(ThreePlaces, WhoIsLostHasItsSeatUntilTheViewIsWithoutIt) {
  const auto second = mesh_[2];
  EXPECT_FALSE(seats_->has_gone({2}));
  EXPECT_EQ(lose(2, dead(second)), News::loss);
  EXPECT_EQ(lose(2, dead(second)), News::none) << "it is known";
  EXPECT_TRUE(seats_->has_gone({2}));
  EXPECT_EQ(seats_->at({2}), second);
  EXPECT_TRUE(seats_->hear_ready({2}, {.number = now_.number() + 1}));
  agree({1});
  EXPECT_FALSE(is_member(2));
  EXPECT_EQ(seats_->at({2}), nullptr);
  EXPECT_EQ(seats_->ready({2}).number, 0u);
  EXPECT_EQ(seats_->at({1}), mesh_[1]);
}

TEST_F(ThreePlaces, WhatWasAssumedMayBeProvedOnce) {
  const auto second = mesh_[2];
  EXPECT_EQ(lose(2, dead(second, Absence::assumed)), News::loss);
  EXPECT_EQ(lose(2, dead(second, Absence::assumed)), News::none);
  EXPECT_EQ(lose(2, dead(second)), News::proof);
  EXPECT_EQ(lose(2, dead(second)), News::none);
}

TEST_F(ThreePlaces, TheEndOfAProcessThatNobodyMeansIsNoNews) {
  const auto before = mesh_[2];
  come(2);
  Epoch other;
  // The old process still has the seat in that epoch.
  EXPECT_EQ(seats_->note({2}, dead(before), other), News::loss);
  const auto stranger = come(1);
  mesh_[1] = now_.channels[{1}];
  EXPECT_EQ(seats_->note({1}, dead(stranger), now_), News::none);
  EXPECT_EQ(seats_->loss_at({1}), nullptr);
}

TEST_F(ThreePlaces, OfSeveralLossesAtAPlaceTheMembersCounts) {
  const auto member = mesh_[2];
  const auto newcomer = come(2);
  EXPECT_EQ(lose(2, dead(member)), News::loss);
  EXPECT_EQ(lose(2, dead(newcomer)), News::loss);
  EXPECT_EQ(seats_->loss_at({2})->channel, member);
  agree({1});
  EXPECT_FALSE(is_member(2));
}

TEST_F(ThreePlaces, WhoWasReadyAndLeftInOrderIsNotMissedBeforeTheEpochIsThere) {
  EXPECT_TRUE(seats_->hear_ready({2}, {.number = now_.number() + 1}));
  EXPECT_EQ(lose(2, left(mesh_[2])), News::loss);
  EXPECT_FALSE(is_absent(2));
  EXPECT_FALSE(seats_->first_missing()) << "it has seen the epoch";
  seats_->miss_early();
  EXPECT_TRUE(is_absent(2));
  EXPECT_EQ(seats_->first_missing(), GroupPlace{2});
}

TEST_F(ThreePlaces, WhoDiedOrWasNotReadyIsMissedAtOnce) {
  EXPECT_TRUE(seats_->hear_ready({1}, {.number = now_.number() + 1}));
  (void)lose(1, dead(mesh_[1]));
  EXPECT_TRUE(is_absent(1));
  (void)lose(2, left(mesh_[2]));
  // This member is then alone, and the end of the others is proved, so it continues.
  EXPECT_FALSE(is_member(1));
  EXPECT_FALSE(is_member(2));
}

TEST_F(ThreePlaces, OnlyWhoIsNewAndHereIsAdmitted) {
  (void)lose(2, dead(mesh_[2]));
  EXPECT_FALSE(seats_->admit_newcomers(now_)) << "the place is not free yet";
  agree({1});
  EXPECT_FALSE(seats_->admit_newcomers(now_)) << "it is the one that was left out";
  const auto gone = come(2);
  (void)lose(2, dead(gone));
  EXPECT_FALSE(seats_->admit_newcomers(now_));
  come(2)->violation("it does not keep to the protocol");
  EXPECT_FALSE(seats_->admit_newcomers(now_));
  come(2);
  EXPECT_TRUE(seats_->admit_newcomers(now_));
  EXPECT_TRUE(seats_->agreement().admitted()[2]);
  EXPECT_FALSE(seats_->admit_newcomers(now_));
}

TEST_F(ThreePlaces, WhoWasReplacedIsTakenOnceAndThenForgotten) {
  (void)lose(1, dead(mesh_[1]));
  (void)lose(2, dead(mesh_[2]));
  EXPECT_THAT(seats_->take_replaced(), IsEmpty());
  come(2);
  EXPECT_THAT(seats_->take_replaced(), ElementsAre(GroupPlace{2}));
  EXPECT_THAT(seats_->take_replaced(), IsEmpty());
  EXPECT_EQ(seats_->forget_replaced().size(), 1u);
  EXPECT_EQ(seats_->loss_at({2}), nullptr);
  EXPECT_NE(seats_->loss_at({1}), nullptr);
}

TEST_F(ThreePlaces, TheLatestWordOfEachCounts) {
  Epoch next;
  next.view = 1;
  next.attempt = 1;
  EXPECT_TRUE(seats_->hear_ready({1}, {.number = next.number() + 1}));
  EXPECT_FALSE(seats_->hear_ready({1}, {.number = next.number()}));
  EXPECT_EQ(seats_->ready({1}).number, next.number() + 1);
  EXPECT_EQ(seats_->latest_attempt(1), 2u);
  EXPECT_EQ(seats_->latest_attempt(2), 0u);
  // The word of place 2 is on its way; a member that is ahead or lost sends none.
  EXPECT_TRUE(seats_->is_over_for_others(next, {GroupPlace{2}}));
  EXPECT_FALSE(seats_->is_over_for_others(next, {GroupPlace{1}, GroupPlace{2}}));
  (void)lose(2, dead(mesh_[2]));
  EXPECT_FALSE(seats_->is_over_for_others(next, {GroupPlace{2}}));
}

TEST_F(ThreePlaces, WhoHasLeftTheGroupKeepsNoChannel) {
  (void)lose(2, dead(mesh_[2]));
  std::weak_ptr<MemberChannel> one = mesh_[1];
  std::weak_ptr<MemberChannel> two = mesh_[2];
  mesh_.assign(kPlaces, nullptr);
  now_.channels = {};
  seats_->forget().clear();
  EXPECT_TRUE(one.expired());
  EXPECT_TRUE(two.expired());
}

}  // namespace
}  // namespace tendon::detail
