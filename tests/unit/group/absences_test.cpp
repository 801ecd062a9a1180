// SPDX-License-Identifier: Apache-2.0
// Which members count as absent when members report different absences.
#include "group/membership/absences.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace tendon::detail {
namespace {

MemberMask mask_of(std::initializer_list<std::uint32_t> places) {
  MemberMask mask;
  for (const std::uint32_t place : places) mask.set(place);
  return mask;
}

const MemberMask kFour = mask_of({0, 1, 2, 3});

TEST(Absences, OnlyNewsAreToBeSaid) {
  Absences absences({1}, kFour);
  EXPECT_TRUE(absences.absent().none());
  EXPECT_TRUE(absences.miss({3}, Absence::assumed));
  EXPECT_FALSE(absences.miss({3}, Absence::assumed));
  EXPECT_TRUE(absences.miss({3}, Absence::proved)) << "that it is dead is news";
  EXPECT_FALSE(absences.miss({3}, Absence::assumed));
  EXPECT_EQ(absences.mine(), (AbsenceReport{mask_of({3}), mask_of({3})}));
  EXPECT_EQ(absences.absent(), mask_of({3}));
  EXPECT_EQ(absences.proved(), mask_of({3}));
}

TEST(Absences, OfTwoThatReportEachOtherTheLowerOneStays) {
  Absences absences({0}, kFour);
  absences.hear({2}, {.absent = mask_of({1}), .proved = {}});
  EXPECT_EQ(absences.absent(), mask_of({1})) << "it has not said anything yet";
  absences.hear({1}, {.absent = mask_of({2}), .proved = {}});
  EXPECT_EQ(absences.absent(), mask_of({2}));
  EXPECT_TRUE(absences.mine().absent.none());
}

TEST(Absences, WhoIsMissedHereIsNotListenedTo) {
  Absences absences({3}, kFour);
  absences.hear({0}, {.absent = mask_of({1}), .proved = {}});
  (void)absences.miss({0}, Absence::assumed);
  EXPECT_EQ(absences.absent(), mask_of({0}));
}

TEST(Absences, TheDeadAreAbsentWhoeverSaysSo) {
  Absences absences({3}, kFour);
  absences.hear({2}, {.absent = mask_of({0, 1}), .proved = mask_of({0})});
  (void)absences.miss({2}, Absence::assumed);
  EXPECT_EQ(absences.absent(), mask_of({0, 2}));
  EXPECT_EQ(absences.proved(), mask_of({0}));
}

TEST(Absences, NobodyReportsItself) {
  Absences absences({0}, kFour);
  absences.hear({1}, {.absent = mask_of({1, 2}), .proved = {}});
  EXPECT_EQ(absences.absent(), mask_of({2}));
}

TEST(Absences, OnlyMembersCount) {
  Absences absences({0}, kFour);
  absences.hear({1}, {.absent = mask_of({7}), .proved = mask_of({7})});
  (void)absences.miss({8}, Absence::assumed);
  EXPECT_TRUE(absences.absent().none());
  EXPECT_TRUE(absences.proved().none());
}

TEST(Absences, InTheNextEpochOnlyWhatThisMemberSawOfThoseWhoStayHolds) {
  Absences absences({0}, kFour);
  absences.hear({1}, {.absent = mask_of({3}), .proved = {}});
  (void)absences.miss({2}, Absence::proved);
  (void)absences.miss({3}, Absence::assumed);
  // Another process is at place 2.
  absences.begin(mask_of({0, 1, 2, 3}), mask_of({0, 1, 3}));
  EXPECT_EQ(absences.mine(), (AbsenceReport{mask_of({3}), {}}));
  EXPECT_EQ(absences.absent(), mask_of({3}));
  EXPECT_TRUE(absences.proved().none());
  absences.begin(mask_of({0, 1, 2}), mask_of({0, 1, 2}));
  EXPECT_TRUE(absences.absent().none());
}

}  // namespace
}  // namespace tendon::detail
