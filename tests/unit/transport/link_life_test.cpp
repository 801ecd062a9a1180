// SPDX-License-Identifier: Apache-2.0
#include "transport/link_life.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

using State = LinkLife::State;

class LinkLifeTest : public testing::Test {
 protected:
  const Error first_{ErrorCode::end_of_stream, "a", "goodbye"};
  const Error second_{ErrorCode::peer_lost, "b", "died"};
  LinkLife life_;
};

TEST_F(LinkLifeTest, LiveLinkHasNoError) {
  EXPECT_FALSE(life_.ended());
  EXPECT_EQ(life_.error(), nullptr);
  EXPECT_FALSE(life_.agreed());
}

TEST_F(LinkLifeTest, TheFirstEndStays) {
  EXPECT_TRUE(life_.end(first_, State::in_order));
  EXPECT_FALSE(life_.end(second_, State::failed));
  EXPECT_EQ(life_.state(), State::in_order);
  ASSERT_NE(life_.error(), nullptr);
  EXPECT_EQ(life_.error()->code, ErrorCode::end_of_stream);
}

TEST_F(LinkLifeTest, ProofOfDeathMayComeLaterAndStays) {
  for (const State how : {State::in_order, State::failed}) {
    LinkLife life;
    EXPECT_TRUE(life.end(first_, how));
    EXPECT_FALSE(life.end(second_, State::died));
    EXPECT_EQ(life.state(), State::died);
    EXPECT_EQ(life.error()->code, ErrorCode::end_of_stream) << "the reason is the first one";
    EXPECT_FALSE(life.end(second_, State::failed));
    EXPECT_EQ(life.state(), State::died) << "a proof is not taken back";
  }
}

TEST_F(LinkLifeTest, AgreementIsNoEnd) {
  life_.agree();
  EXPECT_TRUE(life_.agreed());
  EXPECT_FALSE(life_.ended());
  EXPECT_TRUE(life_.end(first_, State::failed));
  EXPECT_TRUE(life_.agreed());
}

}  // namespace
}  // namespace tendon::detail
