// SPDX-License-Identifier: Apache-2.0
// The channels of a member that has left are closed after the peer has confirmed that it has
// everything.
#include "group/membership/farewell.hpp"

#include <gtest/gtest.h>

#include "support/group_cores.hpp"

namespace tendon::detail {
namespace {

class FarewellOver : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override { members_.join(); }
  std::shared_ptr<MemberChannel> channel_of(std::uint32_t rank) {
    return members_.cores[rank]->epoch()->channels[{1 - rank}]->shared_from_this();
  }

  test::GroupCores members_{2, GetParam()};
};

TEST_P(FarewellOver, ClosesWhatItHasWhenThePeerHasEverything) {
  const auto channel = channel_of(0);
  Farewell farewell({channel});
  if (!channel->link().traits().sent_is_delivered) {
    // The peer makes no progress: it has not answered, however often the member asks.
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(farewell.progress());
      members_.contexts[0].progress();
      EXPECT_FALSE(channel->lost());
      EXPECT_EQ(farewell.unsent().peer, channel->link().peer_name());
    }
    EXPECT_TRUE(members_.progress_until([&] { return !farewell.progress(); }));
  } else {
    EXPECT_FALSE(farewell.progress());
  }
  EXPECT_TRUE(channel->lost());
  EXPECT_TRUE(farewell.unsent().peer.empty());
  EXPECT_TRUE(members_.progress_until([&] { return channel_of(1)->lost(); }));
}

TEST_P(FarewellOver, TheEngineSeesToTheRest) {
  const auto channel = channel_of(0);
  Farewell::say(*members_.cores[0]->context(), {channel});
  EXPECT_EQ(channel->lost(), channel->link().traits().sent_is_delivered);
  EXPECT_TRUE(members_.progress_until([&] { return channel->lost() && channel_of(1)->lost(); }));
}

INSTANTIATE_TEST_SUITE_P(Paths, FarewellOver, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

}  // namespace
}  // namespace tendon::detail
