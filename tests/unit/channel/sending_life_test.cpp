// SPDX-License-Identifier: Apache-2.0
#include "channel/sending_life.hpp"

#include <gtest/gtest.h>

namespace tendon::test {
namespace {

using detail::SendingLife;
using State = SendingLife::State;

Error why(ErrorCode code) { return Error{code, "test", "the test says so"}; }

TEST(SendingLife, ItLeavesOnceAndKeepsTheFirstReason) {
  SendingLife finished;
  EXPECT_TRUE(finished.may_send());
  finished.finish(why(ErrorCode::pipe_closed));
  EXPECT_FALSE(finished.may_send());
  EXPECT_EQ(finished.state(), State::finished);
  finished.end(why(ErrorCode::peer_lost));
  EXPECT_EQ(finished.state(), State::finished);
  EXPECT_EQ(finished.error().code, ErrorCode::pipe_closed);

  SendingLife ended;
  ended.end(why(ErrorCode::peer_lost));
  EXPECT_EQ(ended.state(), State::ended);
  ended.finish(why(ErrorCode::pipe_closed));
  ended.end(why(ErrorCode::cancelled));
  EXPECT_EQ(ended.state(), State::ended);
  EXPECT_EQ(ended.error().code, ErrorCode::peer_lost);
}

}  // namespace
}  // namespace tendon::test
