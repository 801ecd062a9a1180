// SPDX-License-Identifier: Apache-2.0
// The figures that a node has of another by the links between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tendon/fabric/node.hpp>

#include "support/batches.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;

class StatsOfPeers : public NodesTest {};
TENDON_ON_BOTH_PATHS(StatsOfPeers);

TEST_P(StatsOfPeers, SayHowItIsReachedAndWhatCame) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "frames").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  // A subscriber may arrive before the name of its node.
  ASSERT_TRUE(eventually([&] { return vision.node.peer_stats("motor").has_value(); }));
  const PeerStats before = motor.node.peer_stats("vision").value();
  EXPECT_EQ(before.node, "vision");
  EXPECT_EQ(before.context, vision.context.id());
  EXPECT_EQ(before.incarnation, ContextCore::of(vision.context)->identity().incarnation);
  EXPECT_EQ(before.path.kind, way().is_shm() ? PathKind::shm : PathKind::tcp);
  constexpr std::uint64_t kBytes = 100'000;
  for (int n = 1; n <= 3; ++n) {
    ASSERT_TRUE(succeeds(publisher.publish(patterned(1, kBytes))));
    (void)receive(subscriber);
  }
  const PeerStats after = motor.node.peer_stats("vision").value();
  EXPECT_GE(after.messages_received, before.messages_received + 3);
  EXPECT_GE(after.bytes_received, before.bytes_received + 3 * kBytes);
  EXPECT_LT(after.bytes_sent, kBytes);
  // The first call of peer_stats() has started a measurement.
  ASSERT_TRUE(eventually([&] { return motor.node.peer_stats("vision").value().round_trip; }));
  EXPECT_GT(*motor.node.peer_stats("vision").value().round_trip, 0ns);
  EXPECT_LT(after.silence, kPatience);
  const PeerStats other = vision.node.peer_stats("motor").value();
  EXPECT_GE(other.bytes_sent, 3 * kBytes);
  EXPECT_GE(other.messages_sent, 3u);
}

TEST_P(StatsOfPeers, AreOfTheOneThatStartedLast) {
  Program& motor = start("motor");
  const Program& old = start("vision");
  Program& fresh = start("vision");
  const auto known = [&] {
    const auto stats = motor.node.peer_stats("vision");
    return stats ? stats->context : ContextId();
  };
  EXPECT_TRUE(eventually([&] { return known() == fresh.context.id(); }));
  stop(fresh);
  EXPECT_TRUE(eventually([&] { return known() == old.context.id(); }));
  stop(old);
  EXPECT_TRUE(eventually([&] { return !motor.node.peer_stats("vision"); }));
  EXPECT_TRUE(fails_with(motor.node.peer_stats("vision"), ErrorCode::unreachable, "vision"));
}

TEST_P(StatsOfPeers, AreMissingWhereThereIsNoLink) {
  Program& motor = start("motor");
  EXPECT_TRUE(
      fails_with(motor.node.peer_stats("nobody"), ErrorCode::unreachable, "no node 'nobody'"));
  EXPECT_TRUE(fails_with(motor.node.peer_stats("motor"), ErrorCode::unreachable, "no link"));
}

}  // namespace
}  // namespace tendon::test
