// SPDX-License-Identifier: Apache-2.0
// Publishers that discovery reports and that cannot be reached: what is said of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/keys/announcement.hpp"
#include "fabric/nodes/context_fabric.hpp"
#include "fabric/nodes/node_core.hpp"
#include "fabric/topics/publisher_core.hpp"
#include "support/batches.hpp"
#include "support/raw_socket.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using detail::ContextFabric;
using detail::NodeCore;
using detail::PublisherCore;
using testing::HasSubstr;

class Unreachable : public NodesTest {
 protected:
  /// Makes `program` believe that vision announces this key, as a discovery service would.
  static void tell(Program& program, const Result<KeyExpression>& key) {
    EXPECT_TRUE(succeeds(discovery_of(program).announce(key.value())));
  }
  static void tell_no_more(Program& program, const Result<KeyExpression>& key) {
    discovery_of(program).withdraw(key.value());
  }
  [[nodiscard]] static Result<KeyExpression> node_at(const Program& vision,
                                                     const std::vector<std::string>& addresses,
                                                     const std::string& name = "vision") {
    detail::NodeAnnouncement node{.domain = "brain",
                                  .name = name,
                                  .context = vision.context.id(),
                                  .start = 1,
                                  .unix_on = {},
                                  .addresses = {}};
    for (const std::string& address : addresses)
      node.addresses.push_back(Address::parse(address).value());
    return to_key(node);
  }
  [[nodiscard]] static Result<KeyExpression> publisher_of(const Program& vision,
                                                          std::uint32_t entity) {
    return to_key(detail::EntityAnnouncement{.domain = "brain",
                                             .kind = detail::EntityKind::publisher,
                                             .context = vision.context.id(),
                                             .entity = entity,
                                             .schema = {},
                                             .qos = {},
                                             .topic = KeyExpression::parse("count").value()});
  }
  /// Starts a program that the others do not know.
  [[nodiscard]] Program alone(const std::string& name) {
    return make({}, {.domain = "brain",
                     .name = name,
                     .peers = std::vector<std::string>{},
                     .listen = "127.0.0.1:0"});
  }

 private:
  [[nodiscard]] static detail::StaticDiscovery& discovery_of(Program& program) {
    // The node keeps it alive.
    return ContextFabric::of(ContextCore::of(program.context), Profile::local).value()->peers();
  }
};
TENDON_ON_BOTH_PATHS(Unreachable);

TEST_P(Unreachable, APublisherIsToldOfOnceWithAllThatWasTried) {
  Program vision = alone("vision");
  Program motor = alone("motor");
  const Told told(motor.node);
  const auto publisher =
      PublisherCore::create(NodeCore::of(vision.node), KeyExpression::parse("count").value(), {})
          .value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  const std::string nobody = address_of_nobody();
  const std::string other = motor.node.address();  // another Context answers there
  const auto wrong = node_at(vision, {nobody, other});
  tell(motor, publisher_of(vision, publisher->entity()));
  tell(motor, wrong);
  const auto events = [&] { return told.of(FabricEventKind::unreachable); };
  ASSERT_TRUE(eventually([&] { return !events().empty(); }));
  const FabricEvent event = events().front();
  EXPECT_EQ(event.key, "count");
  EXPECT_EQ(event.node, "vision");
  ASSERT_EQ(event.tried.size(), 2u);
  EXPECT_EQ(event.tried[0].address, nobody);
  EXPECT_EQ(event.tried[1].address, other);
  EXPECT_THAT(event.tried[1].error, HasSubstr("motor"));
  EXPECT_THAT(event.reason, HasSubstr(nobody));
  // It is tried again, and found where it listens.
  tell_no_more(motor, wrong);
  tell(motor, node_at(vision, {vision.node.address()}));
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher->publish(numbered(1), 0s)));
  EXPECT_EQ(receive(subscriber).publisher, "vision");
  EXPECT_EQ(events().size(), 1u) << "it was tried more often than told";
  publisher->end();
}

// The address completes connections, and sends nothing on them.
TEST_P(Unreachable, ASilentAddressTakesTheTimeOfNoOther) {
  const RawListener silent;
  Program vision = alone("vision");
  Program sensor = alone("sensor");
  Program motor = alone("motor");
  const Told told(motor.node);
  const Publisher lost = Publisher::declare(vision.node, "count").value();
  Publisher found = Publisher::declare(sensor.node, "count").value();
  constexpr std::uint32_t kEntity = 1;
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  tell(motor, publisher_of(vision, kEntity));
  tell(motor, node_at(vision, {silent.address()}));
  tell(motor, publisher_of(sensor, kEntity));
  tell(motor, node_at(sensor, {silent.address(), sensor.node.address()}, "sensor"));
  ASSERT_TRUE(succeeds(found.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(found.publish(numbered(1), 0s)));
  EXPECT_EQ(receive(subscriber).publisher, "sensor");
  const auto events = [&] { return told.of(FabricEventKind::unreachable); };
  ASSERT_TRUE(eventually([&] { return !events().empty(); }));
  EXPECT_EQ(events().size(), 1u);
  EXPECT_EQ(events().front().node, "vision");
  ASSERT_EQ(events().front().tried.size(), 1u);
  EXPECT_EQ(events().front().tried[0].address, silent.address());
}

// The announcements of one node take the turn of no other, however many there are and however long
// each dial waits.
TEST_P(Unreachable, AThousandPublishersOfASilentNodeHoldUpNoOther) {
  const RawListener silent;
  Program vision = alone("vision");
  Program sensor = alone("sensor");
  Program motor = alone("motor");
  Publisher found = Publisher::declare(sensor.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  const Told told(motor.node);
  tell(motor, node_at(vision, {silent.address()}));
  constexpr std::uint32_t kThousand = 1000;
  for (std::uint32_t entity = 1; entity <= kThousand; ++entity)
    tell(motor, publisher_of(vision, entity));
  ASSERT_TRUE(eventually([&] { return motor.node.publishers().size() == kThousand; }));
  constexpr std::uint32_t kEntity = 1;
  tell(motor, publisher_of(sensor, kEntity));
  tell(motor, node_at(sensor, {sensor.node.address()}, "sensor"));
  ASSERT_TRUE(succeeds(found.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(found.publish(numbered(1), 0s)));
  EXPECT_EQ(receive(subscriber).publisher, "sensor");
  // One attempt reports all of them.
  EXPECT_TRUE(
      eventually([&] { return told.of(FabricEventKind::unreachable).size() == kThousand; }));
}

}  // namespace
}  // namespace tendon::test
