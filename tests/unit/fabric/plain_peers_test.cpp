// SPDX-License-Identifier: Apache-2.0
// Nodes among plain Zenoh peers, which the double of Zenoh plays: what publishers put for them, and
// what subscribers hear of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "fabric/context_fabric.hpp"
#include "fabric/plain_codec.hpp"
#include "nodes.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/safetensors_text.hpp"
#include "support/zenoh_network.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ZenohMessage;
using detail::ZenohPort;
using testing::ElementsAre;

KeyExpression key(std::string_view text) { return KeyExpression::parse(text).value(); }

// One number, as a program without Tendon writes it.
Storage a_number(std::uint8_t n) {
  return safetensors_text(R"({"n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                          std::string(1, static_cast<char>(n)));
}
std::uint8_t number_in(const Sample& sample) {
  return sample.tensors->find("n").value().span<const std::uint8_t>()[0];
}

class PlainZenohPeers : public testing::Test {
 protected:
  /// Each one names those that were started before: links need no Zenoh.
  Program& start(const std::string& name, std::vector<std::string> plain = {}) {
    Context context = Context::create({.name = name, .lease = kLongLease}).value();
    const auto fabric =
        detail::ContextFabric::of(detail::ContextCore::of(context), Profile::local).value();
    detail::ZenohMembership membership;
    membership.client = network_.open();
    EXPECT_TRUE(succeeds(fabric->adopt({"the double"}, std::move(membership))));
    NodeOptions options{.domain = "brain",
                        .name = name,
                        .routers = {"the double"},
                        .peers = std::vector<std::string>(),
                        .listen = "127.0.0.1:0",
                        .plain = std::move(plain)};
    for (const auto& program : programs_) options.peers->push_back(program->node.address());
    Node node = Node::join(context, std::move(options), kPatience).value();
    programs_.push_back(std::make_unique<Program>(Program{std::move(context), std::move(node)}));
    return *programs_.back();
  }
  /// From now on the messages of these keys are in came_.
  [[nodiscard]] ZenohPort::Handle listen(std::string_view keys) {
    auto handle = peer_
                      ->subscribe(key(keys),
                                  [this](const ZenohMessage& message) { came_.push_back(message); })
                      .value();
    network_.run_until_quiet();
    return handle;
  }
  void put(const std::string& on, Storage payload, std::string_view attachment = {}) {
    ASSERT_TRUE(succeeds(peer_->put({on, std::move(payload), storage_of(attachment)})));
    network_.run_until_quiet();
  }
  /// The outlet's thread has decided upon all that was published, and what it put has arrived.
  bool settles(const Publisher& publisher, std::uint64_t count) {
    const bool settled = eventually([&] {
      const PublisherStats stats = publisher.stats();
      return stats.plain_put + stats.plain_dropped == count;
    });
    network_.run_until_quiet();
    return settled;
  }
  [[nodiscard]] std::vector<std::uint64_t> sequences() const {
    std::vector<std::uint64_t> found;
    found.reserve(came_.size());
    for (const ZenohMessage& message : came_)
      found.push_back(detail::read_plain_origin(message.attachment.bytes()).value()->sequence);
    return found;
  }

  ZenohNetwork network_{{}};
  std::unique_ptr<ZenohPort> peer_ = network_.open();
  std::vector<ZenohMessage> came_;
  std::vector<std::unique_ptr<Program>> programs_;
};

// Publishing

TEST_F(PlainZenohPeers, WithoutThemNothingIsPut) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "vision/*").value();
  const auto other = listen("motor/**");
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (std::int64_t n = 1; n <= 3; ++n) {
    ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
    EXPECT_EQ(number_of(*subscriber.recv(kPatience).value().tensors), n);
  }
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  EXPECT_EQ(network_.put_count(), 0U);
  EXPECT_EQ(publisher.stats().plain_put, 0U);
  EXPECT_EQ(publisher.stats().plain_dropped, 0U);
}

TEST_F(PlainZenohPeers, GetSamplesWhileTheySubscribe) {
  Program& vision = start("vision");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  {
    const auto subscriber = listen("vision/**");
    ASSERT_TRUE(succeeds(publisher.publish(numbered(2))));
    ASSERT_TRUE(settles(publisher, 1));
    ASSERT_EQ(came_.size(), 1U);
    EXPECT_EQ(came_[0].key, "vision/objects");
    EXPECT_EQ(number_of(detail::from_plain(came_[0].payload, nullptr).value()), 2);
    const auto origin = detail::read_plain_origin(came_[0].attachment.bytes()).value();
    ASSERT_TRUE(origin.has_value());
    EXPECT_EQ(origin->sequence, 2U);
    EXPECT_EQ(origin->context, detail::ContextCore::of(vision.context)->id());
    EXPECT_EQ(origin->schema, numbered(2).schema()->hash());
    EXPECT_EQ(publisher.stats().plain_put, 1U);
  }
  network_.run_until_quiet();
  ASSERT_TRUE(succeeds(publisher.publish(numbered(3))));
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  EXPECT_EQ(network_.put_count(), 1U);
}

TEST_F(PlainZenohPeers, GetWhatWasPublishedBeforeClose) {
  Program& vision = start("vision");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  const auto subscriber = listen("**");
  ASSERT_TRUE(succeeds(publisher.publish(as_bytes("the last words"))));
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  network_.run_until_quiet();
  ASSERT_EQ(came_.size(), 1U);
  EXPECT_EQ(as_text(came_[0].payload.bytes()), "the last words");
}

// A newer sample takes the place of one that waits; whatever the thread did, each one is counted,
// and the newest arrives.
TEST_F(PlainZenohPeers, GetTheNewestSampleAndTheOthersAreCounted) {
  constexpr std::uint64_t kCount = 2000;
  Program& vision = start("vision");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  const auto subscriber = listen("vision/objects");
  for (std::uint64_t n = 1; n <= kCount; ++n)
    ASSERT_TRUE(succeeds(publisher.publish(numbered(static_cast<std::int64_t>(n)))));
  ASSERT_TRUE(settles(publisher, kCount));
  const auto arrived = sequences();
  EXPECT_EQ(arrived.size(), publisher.stats().plain_put);
  EXPECT_EQ(arrived.back(), kCount);
  EXPECT_TRUE(std::ranges::is_sorted(arrived));
}

TEST_F(PlainZenohPeers, GetNoSampleAboveTheCap) {
  Program& vision = start("vision");
  const auto declare = [&](std::uint64_t plain_bytes) {
    return Publisher::declare(vision.node, "vision/objects", {.plain_bytes = plain_bytes});
  };
  EXPECT_TRUE(fails_with(declare(0), ErrorCode::invalid_argument, "plain_bytes is 0"));
  EXPECT_TRUE(fails_with(declare(kMaxPlainBytes + 1), ErrorCode::invalid_argument, "33554432"));
  Publisher publisher = declare(100'000).value();
  const auto subscriber = listen("vision/objects");
  ASSERT_TRUE(succeeds(publisher.publish(patterned(1, 100'000))));  // and a header
  ASSERT_TRUE(settles(publisher, 1));
  ASSERT_TRUE(succeeds(publisher.publish(patterned(2, 200'000))));
  ASSERT_TRUE(settles(publisher, 2));
  ASSERT_TRUE(succeeds(publisher.publish(patterned(3, 90'000))));
  ASSERT_TRUE(settles(publisher, 3));
  EXPECT_EQ(publisher.stats().plain_dropped, 2U);
  EXPECT_THAT(sequences(), ElementsAre(3U));
}

TEST_F(PlainZenohPeers, GetNothingOfAPublisherThatDoesNotWantThem) {
  Program& vision = start("vision");
  Publisher publisher =
      Publisher::declare(vision.node, "vision/objects", {.plain = PlainPeers::off}).value();
  const auto subscriber = listen("**");
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  EXPECT_EQ(network_.put_count(), 0U);
}

TEST_F(PlainZenohPeers, AreSeenByAQuestion) {
  Program& vision = start("vision");
  const auto ask = [&](std::string_view keys) {
    std::atomic<bool> over{false};
    Result<bool> result = false;
    std::jthread asking([&] {
      result = vision.node.has_plain_subscribers(keys, kPatience);
      over = true;
    });
    EXPECT_TRUE(eventually([&] { return over.load(); }, [&] { network_.run_for(1ms); }));
    return result;
  };
  EXPECT_FALSE(ask("vision/objects").value());
  const auto subscriber = listen("vision/*");
  EXPECT_TRUE(ask("vision/objects").value());
  EXPECT_TRUE(ask("**").value());
  EXPECT_FALSE(ask("motor/*").value());
  EXPECT_TRUE(fails_with(vision.node.has_plain_subscribers("a//b", kPatience),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(vision.node.has_plain_subscribers("other", kBriefly), ErrorCode::timeout));
}

// Subscribing

TEST_F(PlainZenohPeers, AreHeardByThoseThatAskForIt) {
  Program& motor = start("motor");
  Subscriber deaf = Subscriber::declare(motor.node, "sensors/*").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "sensors/*", {.plain = true}).value();
  put("sensors/imu", a_number(7), "an attachment of its own");
  const Sample sample = subscriber.recv(kPatience).value();
  EXPECT_EQ(sample.key, "sensors/imu");
  EXPECT_TRUE(sample.plain);
  EXPECT_EQ(sample.publisher, "");
  EXPECT_EQ(sample.sequence, 0U);
  EXPECT_GT(sample.stamp, 0U);
  EXPECT_FALSE(sample.age.has_value());
  EXPECT_EQ(number_in(sample), 7);
  EXPECT_EQ(subscriber.stats().received, 1U);
  EXPECT_EQ(subscriber.stats().plain_received, 1U);
  EXPECT_TRUE(fails_with(deaf.recv(Deadline::now()), ErrorCode::timeout));
  EXPECT_EQ(deaf.stats().received, 0U);
}

TEST_F(PlainZenohPeers, WakeAReceiverThatWaits) {
  Program& motor = start("motor");
  Subscriber subscriber = Subscriber::declare(motor.node, "sensors/*", {.plain = true}).value();
  auto next = subscriber.recv_async();
  put("sensors/imu", a_number(1));
  EXPECT_EQ(number_in(next.wait(kPatience).value()), 1);
  Result<Sample> sample = Sample();
  {
    const std::jthread waiting([&] { sample = subscriber.recv(kPatience); });
    put("sensors/imu", a_number(2));
  }
  ASSERT_TRUE(succeeds(sample));
  EXPECT_EQ(number_in(*sample), 2);
}

// Zenoh cannot tell such a subscriber from a plain one, so its publishers put what links bring.
TEST_F(PlainZenohPeers, AreToldFromPublishersOfTendon) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "vision/*", {.plain = true}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  network_.run_until_quiet();
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  ASSERT_TRUE(settles(publisher, 1));
  EXPECT_EQ(network_.put_count(), 1U);
  put("vision/objects", a_number(2));
  const bool first = subscriber.recv(kPatience).value().plain;
  const bool second = subscriber.recv(kPatience).value().plain;
  EXPECT_NE(first, second) << "one by the link, one of the peer";
  EXPECT_TRUE(fails_with(subscriber.recv(Deadline::now()), ErrorCode::timeout));
  EXPECT_EQ(subscriber.stats().plain_refused, 0U);
}

// A subscriber of the publisher's own Context has a link to it: nothing is put because of it.
TEST_F(PlainZenohPeers, AreNotTheSubscribersOfTheSameContext) {
  Program& vision = start("vision");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  const Subscriber own = Subscriber::declare(vision.node, "vision/*", {.plain = true}).value();
  network_.run_until_quiet();
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  EXPECT_EQ(network_.put_count(), 0U);
}

TEST_F(PlainZenohPeers, ThatPutSomethingElseAreRefused) {
  Program& motor = start("motor");
  Told told(motor.node);
  Subscriber subscriber = Subscriber::declare(motor.node, "sensors/*", {.plain = true}).value();
  put("sensors/imu", storage_of("no safetensors"));
  put("sensors/imu", storage_of(""));
  put("sensors/imu", a_number(1), std::string_view("tendon\0\1", 8));  // it lacks the rest
  put("sensors/eye", storage_of(std::string(kMaxPlainBytes + 1, 'x')));
  put("sensors/eye", a_number(2));
  EXPECT_EQ(number_in(subscriber.recv(kPatience).value()), 2);
  EXPECT_EQ(subscriber.stats().plain_refused, 4U);
  EXPECT_EQ(subscriber.stats().received, 1U);
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::plain_refused).size() == 2; }));
  std::vector<std::string> keys;
  for (const FabricEvent& event : told.of(FabricEventKind::plain_refused)) {
    keys.push_back(event.key);
    EXPECT_EQ(event.node, "a plain Zenoh peer");
  }
  EXPECT_THAT(keys, testing::UnorderedElementsAre("sensors/imu", "sensors/eye"));
}

TEST_F(PlainZenohPeers, HaveToMeetASchema) {
  Program& motor = start("motor");
  Told told(motor.node);
  const auto schema = Schema::make({{"n", DType::u8, {1}}}).value();
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*", {.schema = schema, .plain = true}).value();
  const Storage other =
      safetensors_text(R"({"n":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "ab");
  put("sensors/imu", other);
  put("sensors/imu", other);
  put("sensors/imu", a_number(3));
  const Sample sample = subscriber.recv(kPatience).value();
  EXPECT_EQ(number_in(sample), 3);
  EXPECT_EQ(sample.tensors->schema()->hash(), schema->hash());
  EXPECT_EQ(subscriber.stats().schema_mismatches, 2U);
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::schema_mismatch).empty(); }));
  ASSERT_EQ(told.of(FabricEventKind::schema_mismatch).size(), 1U);
  EXPECT_THAT(told.of(FabricEventKind::schema_mismatch)[0].reason,
              testing::HasSubstr("another type or shape"));
}

TEST_F(PlainZenohPeers, WaitInTheWindowAndTheOldestGiveWay) {
  Program& motor = start("motor");
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*", {.window = 4, .plain = true}).value();
  for (std::uint8_t n = 1; n <= 20; ++n) put("sensors/imu", a_number(n));
  for (std::uint8_t n = 17; n <= 20; ++n)
    EXPECT_EQ(number_in(subscriber.recv(kPatience).value()), n);
  EXPECT_EQ(subscriber.stats().plain_dropped, 16U);
  // Three of the largest are more than may wait.
  for (int i = 0; i < 3; ++i) put("sensors/imu", storage_of(std::string(kMaxPlainBytes, 'x')));
  EXPECT_EQ(subscriber.stats().plain_dropped, 17U);
  subscriber.close();
  EXPECT_EQ(network_.put_count(), 23U);
}

TEST_F(PlainZenohPeers, HaveNoAge) {
  Program& motor = start("motor", {"sensors/**"});
  EXPECT_TRUE(
      fails_with(Subscriber::declare(motor.node, "sensors/*", {.max_age = 1s, .plain = true}),
                 ErrorCode::invalid_argument, "no age"));
  Subscriber commands = Subscriber::declare(motor.node, "sensors/*", {.max_age = 1s}).value();
  put("sensors/imu", a_number(1));
  EXPECT_TRUE(fails_with(commands.recv(Deadline::now()), ErrorCode::timeout));
}

TEST_F(PlainZenohPeers, AreHeardWhereTheNodeSaysSo) {
  Program& motor = start("motor", {"sensors/**", "eye"});
  Subscriber inside = Subscriber::declare(motor.node, "sensors/*").value();
  Subscriber larger = Subscriber::declare(motor.node, "**").value();
  Subscriber unwilling = Subscriber::declare(motor.node, "sensors/*", {.plain = false}).value();
  put("sensors/imu", a_number(1));
  EXPECT_TRUE(succeeds(inside.recv(kPatience)));
  EXPECT_TRUE(fails_with(larger.recv(Deadline::now()), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(unwilling.recv(Deadline::now()), ErrorCode::timeout));
}

TEST_F(PlainZenohPeers, AreNotHeardWithoutZenoh) {
  Context context = Context::create({.name = "alone"}).value();
  const auto join = [&](std::vector<std::string> plain) {
    return Node::join(
        context, {.name = "alone", .peers = std::vector<std::string>(), .plain = std::move(plain)},
        kPatience);
  };
  EXPECT_TRUE(fails_with(join({"a/**"}), ErrorCode::not_supported, "routers"));
  EXPECT_TRUE(fails_with(join({"a//b"}), ErrorCode::invalid_argument));
  Node node = join({}).value();
  EXPECT_TRUE(fails_with(Subscriber::declare(node, "a", {.plain = true}), ErrorCode::not_supported,
                         "routers"));
  EXPECT_TRUE(fails_with(node.has_plain_subscribers("a", kPatience), ErrorCode::not_supported));
  EXPECT_TRUE(succeeds(Publisher::declare(node, "a")));  // `automatic` asks for nothing
}

}  // namespace
}  // namespace tendon::test
