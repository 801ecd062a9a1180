// SPDX-License-Identifier: Apache-2.0
// Nodes that find each other by the real Zenoh. Compiled only if Tendon is built with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/nodes/node_core.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

struct Program {
  Context context;
  Node node;
};

class ZenohNodes : public testing::Test {
 protected:
  ZenohNodes() {
    unsetenv("ZENOH_CONFIG_OVERRIDE");
    unsetenv("TENDON_ROUTER");
    unsetenv("TENDON_DOMAIN");
    // Another run of this test on this host has another domain.
    domain_ = "test " + dir_.path().string();
  }
  Program start(const std::string& name, std::vector<std::string> routers = {}) {
    Context context = Context::create({.name = name}).value();
    NodeOptions options{.domain = domain_, .name = name, .routers = std::move(routers)};
    Node node = Node::join(context, std::move(options), kPatience).value();
    return {std::move(context), std::move(node)};
  }
  [[nodiscard]] std::string place() const { return (dir_.path() / "router.zenoh").string(); }
  [[nodiscard]] std::unique_ptr<detail::ZenohPort> router() const {
    return detail::open_zenoh(
               {.mode = detail::ZenohMode::router, .listen = {"unixsock-stream/" + place()}},
               kPatience)
        .value();
  }
  // True if a sample that is published now arrives.
  static bool delivers(Publisher& publisher, Subscriber& subscriber, std::int64_t number) {
    if (!succeeds(publisher.publish(numbered(number), kPatience))) return false;
    for (;;) {
      const auto sample = subscriber.recv(kPatience);
      if (!succeeds(sample)) return false;
      if (number_of(*sample->tensors) == number) return sample->gaps.empty();
    }
  }

  const ScratchDir dir_;
  std::string domain_;
};

TEST_F(ZenohNodes, OfOneHostFindEachOther) {
  Program vision = start("vision");
  Program motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "vision/*").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_TRUE(delivers(publisher, subscriber, 1));
  EXPECT_EQ(motor.node.nodes(), (std::vector<std::string>{"motor", "vision"}));
}

// A node hears only of matching nodes, until it asks for all.
TEST_F(ZenohNodes, AreToldOfTheWholeDomainByASurvey) {
  Program vision = start("vision");
  Program motor = start("motor");
  const Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  ASSERT_TRUE(succeeds(motor.node.survey(kPatience)));
  EXPECT_EQ(motor.node.nodes(), (std::vector<std::string>{"motor", "vision"}));
  // An announcement of a moment before may still be on its way to the router.
  ASSERT_TRUE(eventually([&] { return motor.node.publishers().size() == 1; }));
  EXPECT_EQ(motor.node.publishers()[0].key, "vision/objects");
  EXPECT_EQ(motor.node.publishers()[0].node, "vision");
  EXPECT_EQ(vision.node.nodes(), std::vector<std::string>{"vision"});
}

TEST_F(ZenohNodes, OfAnotherDomainAreNotFound) {
  Program vision = start("vision");
  domain_ += " other";
  Program stranger = start("stranger");
  ASSERT_TRUE(succeeds(stranger.node.survey(kPatience)));
  EXPECT_EQ(stranger.node.nodes(), std::vector<std::string>{"stranger"});
}

TEST_F(ZenohNodes, GoOnWithoutTheRouterAndFindOthersWhenItIsBack) {
  auto first = router();
  const std::vector<std::string> routers{"unix:" + place()};
  Program vision = start("vision", routers);
  Program motor = start("motor", routers);
  std::mutex mutex;
  std::vector<std::string> undiscoverable;
  motor.node.on_event([&](const FabricEvent& event) {
    if (event.kind != FabricEventKind::undiscoverable) return;
    const std::lock_guard lock(mutex);
    undiscoverable.push_back(event.node);
  });
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "vision/*").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_TRUE(delivers(publisher, subscriber, 1));
  first.reset();
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return undiscoverable == std::vector<std::string>{"vision"};
  })) << testing::PrintToString(undiscoverable);
  EXPECT_TRUE(delivers(publisher, subscriber, 2));
  EXPECT_EQ(subscriber.stats().publishers, 1U);
  const auto second = router();
  Program late = start("late", routers);
  Subscriber further = Subscriber::declare(late.node, "vision/*").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  EXPECT_TRUE(delivers(publisher, further, 3));
  EXPECT_EQ(subscriber.stats().missed, 0U);
}

TEST_F(ZenohNodes, CallThoseThatTheyHearOfAndGoOnWithoutTheRouter) {
  auto router = this->router();
  const std::vector<std::string> routers{"unix:" + place()};
  Program brain = start("brain", routers);
  Program arm = start("arm", routers);
  const auto echo = [](const Request& request) { return Result<TensorDict>(request.tensors()); };
  const Responder responder = Responder::declare(arm.node, "arm/plan", echo).value();
  const Responder other = Responder::declare(arm.node, "arm/stop", echo).value();
  EXPECT_EQ(brain.node.call("arm/plan", numbered(1), kPatience).value().node, "arm");
  EXPECT_EQ(brain.node.responders().size(), 1U) << "it is told of what it called";
  router.reset();
  ASSERT_TRUE(eventually([&] { return brain.node.responders().empty(); }));
  EXPECT_EQ(brain.node.call("arm/plan", numbered(2), kPatience).value().node, "arm");
  EXPECT_TRUE(fails_with(brain.node.call("arm/stop", numbered(2), kBriefly), ErrorCode::unreachable,
                         "arm/stop"));
}

TEST_F(ZenohNodes, PutNothingByZenohWithoutPlainPeers) {
  const auto served = router();
  const std::vector<std::string> routers{"unix:" + place()};
  Program vision = start("vision", routers);
  Program motor = start("motor", routers);
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "vision/*").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  const std::uint64_t puts = detail::zenoh_puts();
  for (std::int64_t n = 1; n <= 10; ++n) EXPECT_TRUE(delivers(publisher, subscriber, n));
  EXPECT_FALSE(vision.node.has_plain_subscribers("vision/objects", kPatience).value());
  EXPECT_EQ(detail::zenoh_puts(), puts);
  const auto peer = detail::open_zenoh({.connect = {"unixsock-stream/" + place()}}, kPatience);
  const auto came = std::make_shared<std::atomic<int>>(0);
  // It receives nothing on keys that begin with "@": no cable and no question of Tendon.
  const auto other = std::make_shared<std::atomic<int>>(0);
  auto listening = (*peer)->subscribe(KeyExpression::parse("**").value(),
                                      [came, other](const detail::ZenohMessage& message) {
                                        ++*(message.key == "vision/objects" ? came : other);
                                      });
  ASSERT_TRUE(eventually(
      [&] { return vision.node.has_plain_subscribers("vision/objects", kPatience).value(); }));
  ASSERT_TRUE(eventually([&] { return succeeds(publisher.publish(numbered(11))) && *came > 0; }));
  EXPECT_GT(detail::zenoh_puts(), puts);
  EXPECT_EQ(*other, 0);
  *listening = nullptr;
  ASSERT_TRUE(eventually(
      [&] { return !vision.node.has_plain_subscribers("vision/objects", kPatience).value(); }));
}

// The first node serves the place where they meet.
TEST_F(ZenohNodes, FindEachOtherAfterTheOneThatServedHasGone) {
  auto first = std::make_unique<Program>(start("first"));
  Program second = start("second");
  first.reset();
  Program third = start("third");
  Publisher publisher = Publisher::declare(second.node, "second/state").value();
  Subscriber subscriber = Subscriber::declare(third.node, "second/**").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_TRUE(delivers(publisher, subscriber, 1));
}

TEST_F(ZenohNodes, OfOneContextShareASession) {
  Context context = Context::create({.name = "both"}).value();
  Node a = Node::join(context, {.domain = domain_, .name = "a"}, kPatience).value();
  Node b = Node::join(context, {.domain = domain_, .name = "b"}, kPatience).value();
  ASSERT_TRUE(succeeds(a.survey(kPatience)));
  EXPECT_EQ(a.nodes(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(ZenohNodes, SayThatNoRouterIsThere) {
  Context context = Context::create({}).value();
  EXPECT_TRUE(fails_with(Node::join(context, {.name = "a", .routers = {"unix:" + place()}}, 300ms),
                         ErrorCode::unreachable, "no router answers at unixsock-stream/"));
}

TEST_F(ZenohNodes, TakeTheirDomainFromTheEnvironment) {
  setenv("TENDON_DOMAIN", domain_.c_str(), 1);
  Context context = Context::create({.name = "a"}).value();
  const Node a = Node::join(context, {.name = "a"}, kPatience).value();
  EXPECT_EQ(a.domain(), domain_);
  const Node own =
      Node::join(context, {.domain = "own", .name = "b", .peers = std::vector<std::string>{}},
                 kPatience)
          .value();
  EXPECT_EQ(own.domain(), "own") << "what a program says wins";
  Program c = start("c");
  ASSERT_TRUE(succeeds(c.node.survey(kPatience)));
  EXPECT_EQ(c.node.nodes(), (std::vector<std::string>{"a", "c"}));
  setenv("TENDON_DOMAIN", "", 1);
  const Node unset =
      Node::join(context, {.name = "d", .peers = std::vector<std::string>{}}, kPatience).value();
  EXPECT_EQ(unset.domain(), "default");
  unsetenv("TENDON_DOMAIN");
}

// The node's own session takes nothing large: a subscriber of plain peers has a session that does.
TEST_F(ZenohNodes, HearLargeMessagesOfPlainPeers) {
  const auto served = router();
  Program motor = start("motor", {"unix:" + place()});
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*",
                          {.hears_plain = true, .plain_content = PlainContent::bytes})
          .value();
  const auto peer =
      detail::open_zenoh({.connect = {"unixsock-stream/" + place()}}, kPatience).value();
  const auto to_imu = KeyExpression::parse("sensors/imu").value();
  const auto to_probe = KeyExpression::parse("probe").value();
  std::atomic<std::uint64_t> probed = 0;
  const auto probe = detail::NodeCore::of(motor.node)
                         ->zenoh()
                         ->subscribe(to_probe, [&](const detail::ZenohMessage& message) {
                           probed += message.payload.size_bytes();
                         });
  ASSERT_TRUE(succeeds(probe));
  const auto large = [](std::uint64_t size_bytes) { return Storage::allocate(size_bytes).value(); };
  // The node drops the message, and its connection continues.
  ASSERT_TRUE(succeeds(peer->put_patiently(to_probe, large(std::uint64_t{1} << 20))));
  for (const std::uint64_t size_bytes : {kMaxPlainBytes, kMaxPlainBytes + 1, kMaxPlainBytes * 2})
    ASSERT_TRUE(succeeds(peer->put_patiently(to_imu, large(size_bytes))));
  ASSERT_TRUE(succeeds(peer->put_patiently(to_imu, large(1))));
  EXPECT_EQ(subscriber.recv(kPatience).value().bytes.size_bytes(), kMaxPlainBytes);
  EXPECT_EQ(subscriber.recv(kPatience).value().bytes.size_bytes(), 1U);
  EXPECT_EQ(subscriber.stats().plain_refused, 1U) << "what Zenoh drops it tells nobody";
  ASSERT_TRUE(eventually([&] { return probed > 0; },
                         [&] { (void)peer->put_patiently(to_probe, large(1)); }));
  EXPECT_LT(probed, std::uint64_t{1} << 20);
}

// A node that joined in the background hears a later router's messages, large ones too.
TEST_F(ZenohNodes, HearLargeMessagesByARouterThatComesLater) {
  Context context = Context::create({.name = "motor"}).value();
  Node motor = Node::join(context,
                          {.domain = domain_,
                           .name = "motor",
                           .routers = {"unix:" + place()},
                           .discovery = DiscoveryNeed::background},
                          kPatience)
                   .value();
  Subscriber subscriber =
      Subscriber::declare(motor, "sensors/*",
                          {.hears_plain = true, .plain_content = PlainContent::bytes})
          .value();
  EXPECT_TRUE(fails_with(subscriber.recv(Deadline::now()), ErrorCode::timeout));
  const auto served = router();
  const auto peer =
      detail::open_zenoh({.connect = {"unixsock-stream/" + place()}}, kPatience).value();
  const auto to_imu = KeyExpression::parse("sensors/imu").value();
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 20;
  ASSERT_TRUE(eventually([&] { return subscriber.stats().plain_received > 0; },
                         [&] {
                           const auto put =
                               peer->put_patiently(to_imu, Storage::allocate(kLarge).value());
                           const auto sample = subscriber.recv(std::chrono::milliseconds(100));
                           EXPECT_TRUE(!put || !sample || sample->bytes.size_bytes() == kLarge);
                         }));
}

TEST_F(ZenohNodes, TakeTheirRoutersFromTheEnvironment) {
  const auto served = router();
  setenv("TENDON_ROUTER", ("unix:" + place()).c_str(), 1);
  Program a = start("a");
  unsetenv("TENDON_ROUTER");
  Program b = start("b", {"unix:" + place()});
  ASSERT_TRUE(succeeds(b.node.survey(kPatience)));
  EXPECT_EQ(b.node.nodes(), (std::vector<std::string>{"a", "b"}));
}

}  // namespace
}  // namespace tendon::test
