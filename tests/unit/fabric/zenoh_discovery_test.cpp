// SPDX-License-Identifier: Apache-2.0
// Discovery by Zenoh over the double of its sessions: one thread, its own time, one course for each
// seed.
#include "fabric/zenoh_discovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "fabric/known_peers.hpp"
#include "fabric/node_discovery.hpp"
#include "support/expect.hpp"
#include "support/zenoh_network.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using namespace tendon::detail;
using testing::ElementsAre;
using testing::IsEmpty;

KeyExpression key(std::string_view text) { return KeyExpression::parse(text).value(); }

ContextId context_id(std::uint32_t number) {
  ContextId id;
  for (std::size_t i = 0; i < sizeof number; ++i)
    id.bytes[i] = static_cast<std::byte>(number >> (8 * i));
  id.bytes.back() = std::byte{1};
  return id;
}

class DiscoveryByZenoh : public testing::Test {
 protected:
  std::shared_ptr<ZenohDiscovery> start() {
    return ZenohDiscovery::create(
               network_.open(),
               [this](std::function<void()> run) { network_.after(0us, std::move(run)); })
        .value();
  }

  ZenohNetwork network_{{.seed = 7}};
};

TEST_F(DiscoveryByZenoh, TellsOfWhatIsFollowedAndOfItsOwn) {
  const auto a = start();
  const auto b = start();
  ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
  network_.run_until_quiet();
  ASSERT_TRUE(succeeds(b->announce(key("n/b"))));
  EXPECT_THAT(b->keys(), ElementsAre("n/b"));
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  EXPECT_EQ(b->picture(), Picture::incomplete);
  network_.run_until_quiet();
  EXPECT_EQ(b->picture(), Picture::complete);
  EXPECT_THAT(b->keys(), ElementsAre("n/a", "n/b"));
  EXPECT_THAT(a->keys(), ElementsAre("n/a"));
  a->withdraw(key("n/a"));
  network_.run_until_quiet();
  EXPECT_THAT(b->keys(), ElementsAre("n/b"));
}

TEST_F(DiscoveryByZenoh, CountsWhatIsAnnouncedAndFollowedTwice) {
  const auto a = start();
  const auto b = start();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
    ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  }
  a->withdraw(key("n/a"));
  b->unfollow(key("n/*"));
  network_.run_until_quiet();
  EXPECT_THAT(b->keys(), ElementsAre("n/a"));
  b->unfollow(key("n/*"));
  EXPECT_THAT(b->keys(), IsEmpty());
}

TEST_F(DiscoveryByZenoh, ChangesAreToldOnceForMany) {
  const auto a = start();
  const auto b = start();
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  network_.run_until_quiet();
  int told = 0;
  const std::uint64_t number = b->watch([&] { ++told; });
  ASSERT_TRUE(succeeds(b->announce(key("m/1"))));
  ASSERT_TRUE(succeeds(b->announce(key("m/2"))));
  network_.run_until_quiet();
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(succeeds(a->announce(key("n/1"))));
  network_.run_until_quiet();
  EXPECT_EQ(told, 2);
  b->unwatch(number);
  a->withdraw(key("n/1"));
  network_.run_until_quiet();
  EXPECT_EQ(told, 2);
}

// What was there before and after is known again, what went meanwhile is not.
TEST_F(DiscoveryByZenoh, AsksAgainWhenTheRouterIsBack) {
  const auto a = start();
  const auto b = start();
  ASSERT_TRUE(succeeds(a->announce(key("n/stays"))));
  ASSERT_TRUE(succeeds(a->announce(key("n/goes"))));
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  network_.run_until_quiet();
  ASSERT_EQ(b->keys().size(), 2U);
  network_.stop_router();
  network_.run_until_quiet();
  EXPECT_EQ(b->picture(), Picture::incomplete);
  EXPECT_THAT(b->keys(), IsEmpty());
  a->withdraw(key("n/goes"));
  ASSERT_TRUE(succeeds(a->announce(key("n/new"))));
  network_.run_for(20s);  // requests end, and are not asked again before the router is back
  network_.heal();
  network_.run_until_quiet();
  EXPECT_EQ(b->picture(), Picture::complete);
  EXPECT_THAT(b->keys(), ElementsAre("n/new", "n/stays"));
}

// No event tells of a partition: a request that ends without an answer is asked again.
TEST_F(DiscoveryByZenoh, FindsAfterAPartitionWhatCameInIt) {
  auto session_a = network_.open();
  const ZenohPort* const port_a = session_a.get();
  const auto a = ZenohDiscovery::create(std::move(session_a), [this](std::function<void()> run) {
                   network_.after(0us, std::move(run));
                 }).value();
  const auto b = start();
  network_.part({{port_a}});
  ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  network_.run_until_quiet();
  EXPECT_THAT(b->keys(), IsEmpty());
  network_.heal();
  network_.run_until_quiet();
  EXPECT_THAT(b->keys(), ElementsAre("n/a"));
}

TEST_F(DiscoveryByZenoh, HasNoKeyThatIsTooLong) {
  const auto session = network_.open();
  const auto b = start();
  ASSERT_TRUE(succeeds(b->follow(key("n/**"))));
  const std::string most = "n/" + std::string(kMaxKeyBytes - 2, 'x');
  const auto token = session->token(key(most)).value();
  network_.run_until_quiet();
  EXPECT_THAT(b->keys(), ElementsAre(most));
}

// One whose answer never comes is asked for by nobody any more.
TEST_F(DiscoveryByZenoh, EndsWhileItIsAsked) {
  const auto a = start();
  ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
  auto b = start();
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  b.reset();
  network_.run_until_quiet();
  EXPECT_THAT(a->keys(), ElementsAre("n/a"));
}

// ---- how much each node hears

/// A session that counts what it is told.
class CountingPort : public ZenohPort {
 public:
  CountingPort(std::unique_ptr<ZenohPort> port, std::size_t& count)
      : port_(std::move(port)), count_(count) {}
  [[nodiscard]] Result<Handle> token(const KeyExpression& key) override {
    return port_->token(key);
  }
  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    return port_->watch(pattern, [&count = count_, on_token = std::move(on_token)](
                                     TokenChange change, std::string_view key) {
      ++count;
      on_token(change, key);
    });
  }
  [[nodiscard]] Result<Handle> get(const KeyExpression& pattern, std::chrono::milliseconds timeout,
                                   OnKey on_key, OnEnd on_end) override {
    return port_->get(
        pattern, timeout,
        [&count = count_, on_key = std::move(on_key)](std::string_view key) {
          ++count;
          on_key(key);
        },
        std::move(on_end));
  }
  [[nodiscard]] Result<void> put(ZenohMessage message) override {
    return port_->put(std::move(message));
  }
  [[nodiscard]] Result<void> put_patiently(const KeyExpression& key, Storage payload) override {
    return port_->put_patiently(key, std::move(payload));
  }
  [[nodiscard]] Result<std::unique_ptr<ZenohPublisher>> publisher(const KeyExpression& key,
                                                                  OnMatching call) override {
    return port_->publisher(key, std::move(call));
  }
  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage call) override {
    return port_->subscribe(pattern, std::move(call));
  }
  [[nodiscard]] Result<Handle> query(ZenohMessage question, std::chrono::milliseconds timeout,
                                     OnMessage call, OnEnd end) override {
    return port_->query(std::move(question), timeout, std::move(call), std::move(end));
  }
  [[nodiscard]] Result<Handle> answer(const KeyExpression& key, OnQuestion call) override {
    return port_->answer(key, std::move(call));
  }
  [[nodiscard]] Result<Handle> on_state(OnState call) override {
    return port_->on_state(std::move(call));
  }
  [[nodiscard]] SessionState state() const override { return port_->state(); }

 private:
  const std::unique_ptr<ZenohPort> port_;
  std::size_t& count_;
};

/// A node with ten publishers and ten subscribers: each topic has one of each.
struct CountedNode {
  std::size_t events = 0;
  std::shared_ptr<ZenohDiscovery> way;
  std::unique_ptr<NodeDiscovery> node;
};

constexpr std::uint32_t kTopics = 10;

std::unique_ptr<CountedNode> start_counted(ZenohNetwork& network, std::uint32_t number,
                                           std::uint32_t node_count) {
  auto counted = std::make_unique<CountedNode>();
  counted->way = ZenohDiscovery::create(
                     std::make_unique<CountingPort>(network.open(), counted->events),
                     [&network](std::function<void()> run) { network.after(0us, std::move(run)); })
                     .value();
  counted->node = std::make_unique<NodeDiscovery>(
      "brain", std::vector<std::shared_ptr<Discovery>>{counted->way});
  NodeDiscovery& node = *counted->node;
  const std::string name = "n" + std::to_string(number);
  node.watch([&node] {
    std::set<ContextId> contexts;
    const KnownPeers known = KnownPeers::read(node.keys(), "brain");
    for (const auto& [id, publisher] : known.publishers) contexts.insert(id.context);
    node.follow_nodes_of(contexts);
  });
  const NodeAnnouncement self{.domain = "brain",
                              .name = name,
                              .context = context_id(number),
                              .start = 1,
                              .unix_on = {},
                              .addresses = {}};
  EXPECT_TRUE(succeeds(node.announce(to_key(self).value())));
  EXPECT_TRUE(succeeds(node.follow_name(name)));
  for (std::uint32_t topic = 0; topic < kTopics; ++topic) {
    // The node behind this one, around the ring.
    const std::string of_next = "n" + std::to_string((number + 1) % node_count);
    EntityAnnouncement entity{.domain = "brain",
                              .kind = EntityKind::publisher,
                              .context = context_id(number),
                              .entity = topic,
                              .schema = {},
                              .qos = {},
                              .topic = key(name + "/t" + std::to_string(topic))};
    EXPECT_TRUE(succeeds(node.announce(to_key(entity).value())));
    entity.kind = EntityKind::subscriber;
    entity.entity = kTopics + topic;
    entity.topic = key(of_next + "/t" + std::to_string(topic));
    EXPECT_TRUE(succeeds(node.follow(EntityKind::publisher, entity.topic)));
    EXPECT_TRUE(succeeds(node.announce(to_key(entity).value())));
  }
  return counted;
}

// Ten publishers match, and one node has them: what the others do is not heard.
TEST_F(DiscoveryByZenoh, ANodeHearsOfWhatMatchesHoweverManyThereAre) {
  for (const std::uint32_t node_count : {12U, 48U}) {
    ZenohNetwork network({.seed = node_count});
    std::vector<std::unique_ptr<CountedNode>> nodes;
    for (std::uint32_t number = 0; number < node_count; ++number)
      nodes.push_back(start_counted(network, number, node_count));
    network.run_until_quiet();
    for (const auto& counted : nodes) {
      const KnownPeers known = KnownPeers::read(counted->node->keys(), "brain");
      EXPECT_EQ(known.publishers.size(), 2 * kTopics);  // its own ones, and those of the next
      EXPECT_EQ(known.nodes.size(), 2U);
      EXPECT_LE(counted->events, 2 * kTopics + 40) << node_count << " nodes";
    }
    for (const auto& counted : nodes) counted->node->close();
  }
}

// ---- what strangers announce

/// A session that tells what no honest router would.
class ForgingPort final : public CountingPort {
 public:
  using CountingPort::CountingPort;
  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    tell_ = on_token;
    return CountingPort::watch(pattern, std::move(on_token));
  }
  void tell(TokenChange change, std::string_view key) const { tell_(change, key); }

 private:
  OnToken tell_;
};

TEST_F(DiscoveryByZenoh, KeepsNothingAbsurdAndOnlySoMuch) {
  std::size_t told = 0;
  auto port = std::make_unique<ForgingPort>(network_.open(), told);
  const ForgingPort& forging = *port;
  const auto b = ZenohDiscovery::create(std::move(port), [this](std::function<void()> run) {
                   network_.after(0us, std::move(run));
                 }).value();
  ASSERT_TRUE(succeeds(b->follow(key("@tendon/brain/**"))));
  network_.run_until_quiet();
  forging.tell(TokenChange::came, "@tendon/brain/" + std::string(std::size_t{64} << 10, 'x'));
  EXPECT_THAT(b->keys(), IsEmpty());
  for (const std::string_view text :
       {std::string_view("@tendon/brain/pub/\xff\xfe"),
        std::string_view("@tendon/brain/pub/\0/1", 20), std::string_view("")})
    forging.tell(TokenChange::came, text);
  EXPECT_EQ(b->keys().size(), 3U);  // as they were told: they go as they came
  for (std::size_t n = 0; n < ZenohDiscovery::kMostKeys; ++n)
    forging.tell(TokenChange::came, "@tendon/brain/forged/" + std::to_string(n));
  EXPECT_EQ(b->keys().size(), ZenohDiscovery::kMostKeys);
  const KnownPeers known = KnownPeers::read(b->keys(), "brain");
  EXPECT_TRUE(known.nodes.empty() && known.publishers.empty());
  // One that goes makes room for one that comes.
  const KeyExpression late_key = to_key(NodeAnnouncement{.domain = "brain",
                                                         .name = "late",
                                                         .context = context_id(1),
                                                         .start = 1,
                                                         .unix_on = {},
                                                         .addresses = {}})
                                     .value();
  const std::string& late = late_key.text();
  forging.tell(TokenChange::came, late);
  EXPECT_FALSE(b->keys().contains(late));
  forging.tell(TokenChange::went, "@tendon/brain/forged/1");
  forging.tell(TokenChange::came, late);
  EXPECT_TRUE(b->keys().contains(late));
}

}  // namespace
}  // namespace tendon::test
