// SPDX-License-Identifier: Apache-2.0
#include "runtime/retirement.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;
using State = Retirement::State;
using Use = Retirement::Use;
using Action = Retirement::Action;
constexpr LinkRole kConnector = LinkRole::connector;
constexpr LinkRole kAcceptor = LinkRole::acceptor;

/// One side of a link, and its time.
class RetirementTest : public testing::Test {
 protected:
  Action tick(LinkRole role, Use use, std::chrono::seconds after) {
    return side_.on_tick(role, use, begin_ + after);
  }
  Action word(LinkRole role, Use use, std::chrono::seconds after = 20s) {
    return side_.on_word(role, use, begin_ + after);
  }
  /// Makes the acceptor's side unused for long enough.
  void idle() { ASSERT_EQ(tick(kAcceptor, Use::unused, 0s), Action::nothing); }
  /// The connector has sent `retire`.
  void ask() {
    ASSERT_EQ(tick(kConnector, Use::unused, 0s), Action::nothing);
    ASSERT_EQ(tick(kConnector, Use::unused, 10s), Action::say_retire);
    ASSERT_EQ(side_.state(), State::asked);
  }

  Retirement side_;
  const Retirement::Clock::time_point begin_ = Retirement::Clock::now();
};

TEST_F(RetirementTest, TheConnectorAsksOnceAfterTenSecondsWithoutUse) {
  EXPECT_EQ(tick(kConnector, Use::unused, 0s), Action::nothing);
  EXPECT_EQ(side_.state(), State::idle);
  EXPECT_EQ(tick(kConnector, Use::unused, 9s), Action::nothing);
  EXPECT_EQ(tick(kConnector, Use::unused, 10s), Action::say_retire);
  EXPECT_EQ(tick(kConnector, Use::unused, 19s), Action::nothing);
}

TEST_F(RetirementTest, TheConnectorAsksAgainAPeerThatHadUseThen) {
  ask();
  EXPECT_EQ(tick(kConnector, Use::unused, 19s), Action::nothing);
  EXPECT_EQ(tick(kConnector, Use::unused, 20s), Action::say_retire);
}

TEST_F(RetirementTest, UseStartsTheTimeAnew) {
  EXPECT_EQ(tick(kConnector, Use::unused, 0s), Action::nothing);
  EXPECT_EQ(tick(kConnector, Use::used, 9s), Action::nothing);
  EXPECT_EQ(tick(kConnector, Use::unused, 10s), Action::nothing);
  EXPECT_EQ(tick(kConnector, Use::unused, 19s), Action::nothing);
  EXPECT_EQ(tick(kConnector, Use::unused, 20s), Action::say_retire);
}

TEST_F(RetirementTest, TheAcceptorNeverAsks) {
  EXPECT_EQ(tick(kAcceptor, Use::unused, 0s), Action::nothing);
  EXPECT_EQ(tick(kAcceptor, Use::unused, 60s), Action::nothing);
}

TEST_F(RetirementTest, TheAcceptorAgreesAtOnceWhenItHasHadNoUse) {
  idle();
  EXPECT_EQ(word(kAcceptor, Use::unused), Action::say_retire);
  EXPECT_EQ(side_.state(), State::agreed);
  EXPECT_FALSE(side_.may_open());
}

TEST_F(RetirementTest, TheAcceptorSaysNothingWhileItUsesTheLink) {
  EXPECT_EQ(word(kAcceptor, Use::used), Action::nothing);
  EXPECT_TRUE(side_.may_open());
}

// There is a handshake between finding a link and opening a pipe on it.
TEST_F(RetirementTest, TheAcceptorDoesNotAgreeWhileACallerMayBeAboutToOpen) {
  EXPECT_EQ(word(kAcceptor, Use::unused, 0s), Action::nothing) << "it was used";
  idle();
  EXPECT_EQ(word(kAcceptor, Use::unused, 4s), Action::nothing);
  side_.on_use();
  EXPECT_EQ(word(kAcceptor, Use::unused, 20s), Action::nothing);
  EXPECT_TRUE(side_.may_open());
}

TEST_F(RetirementTest, AnOpenOfThePeerTakesTheAgreementBack) {
  idle();
  ASSERT_EQ(word(kAcceptor, Use::unused), Action::say_retire);
  side_.on_use();
  EXPECT_EQ(side_.state(), State::used);
  EXPECT_TRUE(side_.may_open());
}

// The connector had a word in flight when the agreement arrived, opened no pipe, and asks again.
TEST_F(RetirementTest, TheAcceptorAgreesAgainWhenAskedAgain) {
  idle();
  ASSERT_EQ(word(kAcceptor, Use::unused), Action::say_retire);
  EXPECT_EQ(word(kAcceptor, Use::unused, 30s), Action::say_retire);
  EXPECT_EQ(side_.state(), State::agreed);
}

TEST_F(RetirementTest, TheConnectorEndsItWhenBothAgree) {
  ask();
  EXPECT_EQ(word(kConnector, Use::unused), Action::end);
  EXPECT_EQ(side_.state(), State::retired);
  side_.on_use();
  EXPECT_FALSE(side_.may_open()) << "it is over";
}

TEST_F(RetirementTest, UseAfterTheWordTakesItBack) {
  ask();
  EXPECT_TRUE(side_.may_open());
  side_.on_use();
  EXPECT_EQ(word(kConnector, Use::unused), Action::nothing) << "a caller is about to open a pipe";
  EXPECT_EQ(side_.state(), State::used);
}

TEST_F(RetirementTest, AnAgreementThatComesToAUsedLinkEndsNothing) {
  ask();
  EXPECT_EQ(word(kConnector, Use::used), Action::nothing);
  EXPECT_EQ(side_.state(), State::used);
}

TEST_F(RetirementTest, AWordThatWasNotAskedForEndsNothing) {
  EXPECT_EQ(word(kConnector, Use::unused), Action::nothing);
  EXPECT_EQ(side_.state(), State::used);
}

}  // namespace
}  // namespace tendon::detail
