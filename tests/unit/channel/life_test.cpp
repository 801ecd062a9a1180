// SPDX-License-Identifier: Apache-2.0
// The table of channel/life.hpp, line by line.
#include "channel/life.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tendon::test {
namespace {

using detail::ChannelLife;
using Receiving = ChannelLife::Receiving;
using Sending = ChannelLife::Sending;

Error why(ErrorCode code) { return Error{code, "test", "the test says so"}; }

TEST(ChannelLife, SendingLeavesOnceAndKeepsTheFirstReason) {
  ChannelLife finished;
  EXPECT_TRUE(finished.may_send());
  finished.finish(why(ErrorCode::pipe_closed));
  EXPECT_FALSE(finished.may_send());
  EXPECT_EQ(finished.sending(), Sending::finished);
  finished.end(why(ErrorCode::peer_lost));
  EXPECT_EQ(finished.sending(), Sending::finished);
  EXPECT_EQ(finished.send_error().code, ErrorCode::pipe_closed);

  ChannelLife ended;
  ended.end(why(ErrorCode::peer_lost));
  EXPECT_EQ(ended.sending(), Sending::ended);
  ended.finish(why(ErrorCode::pipe_closed));
  ended.end(why(ErrorCode::cancelled));
  EXPECT_EQ(ended.sending(), Sending::ended);
  EXPECT_EQ(ended.send_error().code, ErrorCode::peer_lost);
}

void comes(ChannelLife& life) { life.end_came(); }
void reads(ChannelLife& life) { life.end_read(); }
void fails(ChannelLife& life) { life.fail(why(ErrorCode::peer_lost)); }

struct Row {
  std::vector<void (*)(ChannelLife&)> way;  // to the state
  Receiving state;
  Receiving after_comes;
  Receiving after_reads;
  Receiving after_fails;
};

TEST(ChannelLife, ReceivingGoesByItsTable) {
  const std::vector<Row> rows{
      {{}, Receiving::open, Receiving::ending, Receiving::over, Receiving::failed},
      {{comes}, Receiving::ending, Receiving::ending, Receiving::over, Receiving::failing},
      {{comes, fails}, Receiving::failing, Receiving::failing, Receiving::over, Receiving::failing},
      {{fails}, Receiving::failed, Receiving::failed, Receiving::over, Receiving::failed},
      {{comes, reads}, Receiving::over, Receiving::over, Receiving::over, Receiving::over},
  };
  const auto state_after = [](const Row& row, void (*step)(ChannelLife&)) {
    ChannelLife life;
    for (auto* const before : row.way) before(life);
    if (step != nullptr) step(life);
    return life.receiving();
  };
  for (const Row& row : rows) {
    const auto name = static_cast<int>(row.state);
    EXPECT_EQ(state_after(row, nullptr), row.state) << name;
    EXPECT_EQ(state_after(row, comes), row.after_comes) << name;
    EXPECT_EQ(state_after(row, reads), row.after_reads) << name;
    EXPECT_EQ(state_after(row, fails), row.after_fails) << name;
  }
}

// What a receiver with an empty inbox says.
TEST(ChannelLife, AnEndThatWasReadIsOrderlyWhateverFailedMeanwhile) {
  ChannelLife life;
  EXPECT_FALSE(life.is_over());
  life.end_came();
  EXPECT_FALSE(life.is_over()) << "messages may stand before it";
  EXPECT_TRUE(life.has_end());
  life.fail(why(ErrorCode::peer_lost));
  EXPECT_TRUE(life.is_over());
  ASSERT_NE(life.receive_error(), nullptr);
  EXPECT_EQ(life.receive_error()->code, ErrorCode::peer_lost);
  life.end_read();
  EXPECT_TRUE(life.is_over());
  EXPECT_EQ(life.receive_error(), nullptr);
}

TEST(ChannelLife, ThePeersReasonCountsOnceItIsRead) {
  ChannelLife life;
  life.peer_error_came(why(ErrorCode::not_found));
  EXPECT_FALSE(life.has_failed());
  life.read_peer_error();
  EXPECT_TRUE(life.has_failed());
  life.fail(why(ErrorCode::peer_lost));
  EXPECT_EQ(life.receive_error()->code, ErrorCode::not_found) << "the first reason stays";
}

}  // namespace
}  // namespace tendon::test
