// SPDX-License-Identifier: Apache-2.0
// Announcements that a stranger makes at the routers in the name of others: they end nothing that
// works, and nobody follows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/keys/announcement.hpp"
#include "fabric/nodes/context_fabric.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/live_zenoh.hpp"
#include "support/member_events.hpp"
#include "support/raw_socket.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using detail::ContextCore;
using detail::ContextFabric;

constexpr std::uint32_t kThousand = 1000;

class ForgedAnnouncements : public testing::Test {
 protected:
  /// Starts a program on a host of its own, at an address that others reach.
  [[nodiscard]] Program start(const std::string& name) {
    Context context = Context::create({.name = name, .lease = kLongLease}).value();
    const auto fabric = ContextFabric::of(ContextCore::of(context), Profile::local).value();
    EXPECT_TRUE(succeeds(fabric->adopt(
        {"the double"},
        {.server = nullptr, .client = network_.open(++last_host_), .state = nullptr})));
    NodeOptions options{
        .domain = "brain", .name = name, .routers = {"the double"}, .listen = "127.0.0.1:0"};
    Node node = Node::join(context, std::move(options), kPatience).value();
    return {std::move(context), std::move(node)};
  }
  void forge(const Result<KeyExpression>& key) {
    forged_.push_back(stranger_->token(key.value()).value());
  }
  void forge_node(const std::string& name, const ContextId& context, const std::string& address) {
    forge(to_key(detail::NodeAnnouncement{.domain = "brain",
                                          .name = name,
                                          .context = context,
                                          .start = ~std::uint64_t{0},
                                          .unix_on = {},
                                          .addresses = {Address::parse(address).value()}}));
  }
  void forge_publisher(const ContextId& context, std::uint32_t entity) {
    forge(to_key(detail::EntityAnnouncement{.domain = "brain",
                                            .kind = detail::EntityKind::publisher,
                                            .context = context,
                                            .entity = entity,
                                            .schema = {},
                                            .qos = {},
                                            .topic = KeyExpression::parse("count").value()}));
  }
  static void expect_delivery(Publisher& publisher, Subscriber& subscriber, std::int64_t number) {
    ASSERT_TRUE(succeeds(publisher.publish(numbered(number), kPatience)));
    const auto sample = subscriber.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    EXPECT_EQ(number_of(*sample->tensors), number);
    EXPECT_EQ(missing_in(*sample), 0u);
  }

  LiveZenoh network_;
  MemberEventLog members_;
  std::uint8_t last_host_ = 0;
  std::unique_ptr<detail::ZenohPort> stranger_ = network_.open(255);
  std::vector<detail::ZenohPort::Handle> forged_;
};

TEST_F(ForgedAnnouncements, EndNothingAndHoldUpNobody) {
  Program vision = start("vision");
  Program motor = start("motor");
  members_.watch(motor.context);
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.newest_only = true}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  expect_delivery(publisher, subscriber, 1);

  // Forges a node of the same name that started later, and one of the same Context elsewhere.
  const RawListener silent;
  ContextId nobody = vision.context.id();
  nobody.bytes[0] ^= std::byte{1};
  forge_node("vision", nobody, silent.address());
  forge_node("ghost", vision.context.id(), silent.address());
  forge_publisher(nobody, 1);
  // Forges publishers that a real node does not have, and more than any node has.
  for (std::uint32_t n = 0; n < kThousand; ++n) forge_publisher(vision.context.id(), 7000 + n);
  for (const char* text : {"@tendon/brain/pub/x/1/any/h1o1p1/count", "@tendon/brain/robot/1"})
    forge(KeyExpression::parse(text));
  ASSERT_TRUE(eventually([&] { return motor.node.publishers().size() == kThousand + 2; }));
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::unreachable).empty(); }));
  for (std::int64_t number = 2; number <= 50; ++number)
    expect_delivery(publisher, subscriber, number);
  // A later node finds the real publisher.
  Program late = start("late");
  Subscriber further = Subscriber::declare(late.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  expect_delivery(publisher, subscriber, 51);
  for (Sample sample = further.recv(kPatience).value(); number_of(*sample.tensors) != 51;)
    sample = further.recv(kPatience).value();

  forged_.clear();
  ASSERT_TRUE(eventually([&] { return motor.node.publishers().size() == 1; }));
  expect_delivery(publisher, subscriber, 52);
  EXPECT_EQ(members_.count(MemberEventKind::lost), 0u);
  // The node was connected to for its forged publisher too, and refused it.
  EXPECT_TRUE(eventually([&] { return subscriber.stats().publishers == 1; }));
}

}  // namespace
}  // namespace tendon::test
