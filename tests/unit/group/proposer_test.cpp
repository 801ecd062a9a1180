// SPDX-License-Identifier: Apache-2.0
// The ballot that a leader tries, and its proposal.
#include "group/membership/proposer.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace tendon::detail {
namespace {

MemberMask mask_of(std::initializer_list<std::uint32_t> places) {
  MemberMask mask;
  for (const std::uint32_t place : places) mask.set(place);
  return mask;
}

TEST(Proposer, RoundZeroIsTheLowestPlacesAndItsFirst) {
  Proposer lowest({1});
  EXPECT_EQ(lowest.begin({1}, {}), (Ballot{0, 1}));
  EXPECT_EQ(lowest.begin({1}, {}), (Ballot{1, 1}));
  Proposer other({2});
  EXPECT_EQ(other.begin({1}, {}), (Ballot{1, 2}));
  EXPECT_EQ(other.begin({1}, {}), (Ballot{2, 2}));
}

TEST(Proposer, ABallotIsAboveAllThatWereHeardOf) {
  Proposer lowest({0});
  lowest.heed({6, 3});
  lowest.heed({2, 4});
  EXPECT_EQ(lowest.begin({0}, {}), (Ballot{7, 0}));
  lowest.heed({0, 3});
  EXPECT_EQ(lowest.begin({0}, {}), (Ballot{8, 0})) << "a ballot is used once";
}

TEST(Proposer, TheLatestThatSomebodyAcceptedIsProposedAgain) {
  Proposer proposer({0});
  const MemberMask wanted = mask_of({0, 1});
  (void)proposer.begin({0}, {});
  EXPECT_EQ(proposer.propose(wanted), wanted);

  (void)proposer.begin({0}, {{{1, 0}, mask_of({0, 2})}});
  EXPECT_EQ(proposer.propose(wanted), mask_of({0, 2})) << "this member has accepted it";
  proposer.hear({{{5, 1}, mask_of({0, 3})}});
  proposer.hear({{{4, 2}, mask_of({0, 4})}});
  proposer.hear({});
  EXPECT_EQ(proposer.propose(wanted), mask_of({0, 3}));
  EXPECT_EQ(proposer.proposal(), mask_of({0, 3}));

  // Earlier acceptances of others must be reported again.
  (void)proposer.begin({0}, {});
  EXPECT_EQ(proposer.propose(wanted), wanted);
}

TEST(Proposer, EachOneThatIsAskedHasToAnswer) {
  Proposer proposer({0});
  proposer.ask(mask_of({0, 2}));
  proposer.answer({0});
  proposer.answer({1});  // it was not asked
  EXPECT_EQ(proposer.unanswered(), mask_of({2}));
  proposer.answer({2});
  EXPECT_TRUE(proposer.unanswered().none());
  EXPECT_EQ(proposer.asked(), mask_of({0, 2}));
  proposer.ask(mask_of({0}));
  EXPECT_EQ(proposer.unanswered(), mask_of({0})) << "an answer is to one question";
}

TEST(Proposer, ALaterBallotOutvotesUntilTheNextAttempt) {
  Proposer proposer({1});
  (void)proposer.begin({0}, {});
  proposer.refused({0, 0});
  proposer.refused(proposer.ballot());
  EXPECT_FALSE(proposer.outvoted());
  proposer.refused({1, 2});
  EXPECT_TRUE(proposer.outvoted());
  proposer.refused({0, 0});
  EXPECT_TRUE(proposer.outvoted());
  (void)proposer.begin({0}, {});
  EXPECT_FALSE(proposer.outvoted());
}

}  // namespace
}  // namespace tendon::detail
