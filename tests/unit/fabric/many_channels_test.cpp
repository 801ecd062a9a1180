// SPDX-License-Identifier: Apache-2.0
// More topics between two Contexts than a link carries, or than may be announced on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/nodes/context_fabric.hpp"
#include "support/batches.hpp"
#include "support/idle_pipes.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using detail::ContextCore;
using detail::ContextFabric;
using testing::HasSubstr;

class ManyChannels : public NodesTest {
 protected:
  /// The node's share of the announcements of its Context.
  [[nodiscard]] static detail::StaticDiscovery& discovery_of(const Program& program) {
    return ContextFabric::of(ContextCore::of(program.context), Profile::local).value()->peers();
  }
  [[nodiscard]] static KeyExpression key_of(const Program& program, std::uint32_t entity) {
    return to_key(detail::EntityAnnouncement{.domain = "brain",
                                             .kind = detail::EntityKind::publisher,
                                             .context = program.context.id(),
                                             .entity = entity,
                                             .schema = {},
                                             .qos = {},
                                             .topic = KeyExpression::parse("other").value()})
        .value();
  }
  [[nodiscard]] static std::shared_ptr<detail::Link> link_of(const Program& program) {
    std::shared_ptr<detail::Link> link;
    EXPECT_TRUE(eventually([&] {
      const auto links = ContextCore::of(program.context)->links().all();
      if (links->empty()) return false;
      link = links->front();
      return true;
    }));
    return link;
  }
  static void make_room(detail::Link& link) {
    const detail::Lock receiving(link.receive_mutex());
    link.detach(kFirstIdlePipe);
  }
};
TENDON_ON_BOTH_PATHS(ManyChannels);

TEST_P(ManyChannels, ALinkHasSoManyByWhatItsTwoSidesKnow) {
  Program& vision = start("vision");
  EXPECT_EQ(link_of(start("motor"))->most_pipes(), kMaxPipesPerLink);
  Program& old = start("old", {.protocol_minor = 1});
  EXPECT_EQ(link_of(old)->most_pipes(), kMaxPipesPerOldLink);
  stop(vision);
}

TEST_P(ManyChannels, ATopicBeyondThemIsToldOfAndConnectedWhenThereIsRoom) {
  for (const std::uint16_t minor : {std::uint16_t{2}, std::uint16_t{1}}) {
    Program& vision = start("vision", {.protocol_minor = minor});
    Program& motor = start("motor");
    const Told told(motor.node);
    Subscriber subscriber = Subscriber::declare(motor.node, "t/*").value();
    const auto link = link_of(motor);
    EXPECT_TRUE(eventually([&] { return motor.node.nodes().size() == 2; }));
    fill_with_idle_pipes(*link, 1);
    Publisher last = Publisher::declare(vision.node, "t/last").value();
    ASSERT_TRUE(succeeds(subscriber.wait_for_publishers(1, kPatience)));
    EXPECT_TRUE(told.of(FabricEventKind::unreachable).empty());
    Publisher beyond = Publisher::declare(vision.node, "t/beyond").value();
    ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::unreachable).empty(); }));
    const FabricEvent event = told.of(FabricEventKind::unreachable).front();
    EXPECT_EQ(event.key, "t/beyond");
    EXPECT_EQ(event.node, "vision");
    EXPECT_THAT(event.reason, HasSubstr("limit_exceeded"));
    EXPECT_THAT(event.reason, HasSubstr(minor == 2 ? "kMaxPipesPerLink" : "kMaxPipesPerOldLink"));
    make_room(*link);
    EXPECT_TRUE(succeeds(subscriber.wait_for_publishers(2, kPatience)));
    EXPECT_EQ(told.of(FabricEventKind::unreachable).size(), 1u)
        << "once, however often it is tried";
    programs_.clear();
  }
}

TEST_P(ManyChannels, APeerOfAnOlderProtocolHearsOfTheFirstOfThem) {
  Program& vision = start("vision");
  const Told told(vision.node);
  std::vector<KeyExpression> keys;
  // One announcement is the node's.
  for (std::uint32_t n = 1; n <= kMaxOldAnnouncements; ++n) {
    keys.push_back(key_of(vision, n));
    ASSERT_TRUE(succeeds(discovery_of(vision).announce(keys.back())));
  }
  Program& old = start("old", {.protocol_minor = 1});
  Program& young = start("young");
  const auto count = [](const Program& program) { return program.node.publishers().size(); };
  EXPECT_TRUE(eventually([&] { return count(young) == kMaxOldAnnouncements; }));
  EXPECT_TRUE(eventually([&] { return count(old) == kMaxOldAnnouncements - 1; }));
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::unreachable).empty(); }));
  EXPECT_THAT(told.of(FabricEventKind::unreachable).front().reason,
              HasSubstr("kMaxOldAnnouncements"));
  EXPECT_THAT(told.of(FabricEventKind::unreachable).front().node, HasSubstr("old"));
  // A key that was left out is announced when there is room.
  discovery_of(vision).withdraw(keys.front());
  EXPECT_TRUE(eventually([&] { return count(young) == kMaxOldAnnouncements - 1; }));
  discovery_of(vision).withdraw(keys[1]);
  EXPECT_TRUE(eventually([&] { return count(old) == kMaxOldAnnouncements - 2; }));
  EXPECT_EQ(told.of(FabricEventKind::unreachable).size(), 1u);
}

TEST_P(ManyChannels, AContextAnnouncesAtMostSoMany) {
  Program& vision = start("vision");
  for (std::uint32_t n = 1; n < kMaxAnnouncements; ++n)
    ASSERT_TRUE(succeeds(discovery_of(vision).announce(key_of(vision, n))));
  const auto beyond = Publisher::declare(vision.node, "beyond");
  ASSERT_TRUE(fails_with(beyond, ErrorCode::limit_exceeded));
  EXPECT_THAT(beyond.error().detail, HasSubstr("kMaxAnnouncements"));
  discovery_of(vision).withdraw(key_of(vision, 1));
  EXPECT_TRUE(succeeds(Publisher::declare(vision.node, "beyond")));
}

// Each of many publishers has its turn, and samples that wait behind one do not block the others.
TEST_P(ManyChannels, ASubscriberReadsThoseThatHaveSomethingInTurn) {
  constexpr int kTopics = 300;
  Program& vision = start("vision");
  Program& motor = start("motor");
  std::vector<Publisher> publishers;
  for (int n = 0; n < kTopics; ++n) {
    publishers.push_back(
        Publisher::declare(vision.node, "t/" + std::to_string(n), {.qos = {keep_last(4)}}).value());
  }
  Subscriber subscriber = Subscriber::declare(motor.node, "t/*").value();
  ASSERT_TRUE(succeeds(subscriber.wait_for_publishers(kTopics, kPatience)));
  for (Publisher& publisher : publishers)
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  // One publisher always has more samples. The other's sample arrives at some time, and then has
  // its turn.
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(succeeds(publishers[7].publish(numbered(n))));
  ASSERT_TRUE(succeeds(publishers[200].publish(numbered(1))));
  const Deadline patience(kPatience);
  std::string key = receive(subscriber).key;
  while (key == "t/7" && !patience.has_passed()) {
    ASSERT_TRUE(succeeds(publishers[7].publish(numbered(1))));
    key = receive(subscriber).key;
  }
  EXPECT_EQ(key, "t/200") << "it waits for one sample of the other, not for all";
  for (int n = 0; n < 3; ++n) EXPECT_EQ(receive(subscriber).key, "t/7");
  std::vector<std::string> keys;
  for (Publisher& publisher : publishers) ASSERT_TRUE(succeeds(publisher.publish(numbered(9))));
  for (int n = 0; n < kTopics; ++n) keys.push_back(receive(subscriber).key);
  std::ranges::sort(keys);
  EXPECT_EQ(std::ranges::unique(keys).begin() - keys.begin(), kTopics);
}

}  // namespace
}  // namespace tendon::test
