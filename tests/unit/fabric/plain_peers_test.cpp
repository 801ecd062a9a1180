// SPDX-License-Identifier: Apache-2.0
// Nodes among plain Zenoh peers, which the double of Zenoh plays: what publishers put for them, and
// what subscribers hear from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "fabric/keys/announcement.hpp"
#include "fabric/nodes/context_fabric.hpp"
#include "fabric/plain/plain_codec.hpp"
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
  /// Starts a node that names those that were started before: links need no Zenoh.
  Program& start(const std::string& name, std::vector<std::string> plain = {}) {
    Context context = Context::create({.name = name, .lease = kLongLease}).value();
    const auto fabric =
        detail::ContextFabric::of(detail::ContextCore::of(context), Profile::local).value();
    detail::ZenohMembership membership;
    membership.client = network_.open();
    membership.open_for_plain = [this](Deadline) -> Result<std::unique_ptr<ZenohPort>> {
      if (router_answers_) return network_.open();
      return Error{ErrorCode::unreachable, "test", "no router answers"};
    };
    EXPECT_TRUE(succeeds(fabric->adopt({"the double"}, std::move(membership))));
    NodeOptions options{.domain = "brain",
                        .name = name,
                        .routers = {"the double"},
                        .peers = std::vector<std::string>(),
                        .listen = "127.0.0.1:0",
                        .plain_keys = std::move(plain)};
    for (const auto& program : programs_) options.peers->push_back(program->node.address());
    Node node = Node::join(context, std::move(options), kPatience).value();
    programs_.push_back(std::make_unique<Program>(Program{std::move(context), std::move(node)}));
    return *programs_.back();
  }
  /// Collects the messages of these keys in came_ from now on.
  [[nodiscard]] ZenohPort::Handle listen(std::string_view keys) {
    auto handle = peer_
                      ->subscribe(key(keys),
                                  [this](const ZenohMessage& message) { came_.push_back(message); })
                      .value();
    network_.run_until_quiet();
    return handle;
  }
  void put(ZenohMessage message) {
    ASSERT_TRUE(succeeds(peer_->put(std::move(message))));
    network_.run_until_quiet();
  }
  void put(const std::string& on, Storage payload, std::string_view attachment = {}) {
    put({on, std::move(payload), storage_of(attachment)});
  }
  void put_as(const std::string& encoding, std::string_view text) {
    put({"sensors/imu", storage_of(text), {}, encoding});
  }
  void delete_key(const std::string& on) {
    put({.key = on, .payload = {}, .attachment = {}, .kind = detail::ZenohKind::deleted});
  }
  /// Runs a call that waits, while the network's time advances.
  Result<void> while_network_runs(const std::function<Result<void>()>& what) {
    std::atomic<bool> over{false};
    Result<void> result;
    const std::jthread waiting([&] {
      result = what();
      over = true;
    });
    EXPECT_TRUE(eventually([&] { return over.load(); }, [&] { network_.run_for(1ms); }));
    return result;
  }
  Result<void> wait_for(Publisher& publisher, std::size_t count,
                        std::chrono::milliseconds patience = kPatience) {
    return while_network_runs([&] { return publisher.wait_for_subscribers(count, patience); });
  }
  /// Waits until the outlet's thread has decided on `count` samples, and its puts have arrived.
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
  std::atomic<bool> router_answers_{true};  // to sessions that are opened later
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

// A newer sample replaces one that waits. Whatever the thread did, each sample is counted, and the
// newest arrives.
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
      Publisher::declare(vision.node, "vision/objects", {.plain_peers = PlainPeers::off}).value();
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
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*", {.hears_plain = true}).value();
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
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*", {.hears_plain = true}).value();
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

// Zenoh cannot tell such a subscriber from a plain one, so publishers also put samples that links
// carry.
TEST_F(PlainZenohPeers, AreToldFromPublishersOfTendon) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber =
      Subscriber::declare(motor.node, "vision/*", {.hears_plain = true}).value();
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

// A subscriber of the publisher's own Context hears plain peers by a session of its own, as those
// of other Contexts do. The sample is put, and ignored where it arrives by Zenoh.
TEST_F(PlainZenohPeers, AreNotTheSubscribersOfTheSameContext) {
  Program& vision = start("vision");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber own = Subscriber::declare(vision.node, "vision/*", {.hears_plain = true}).value();
  ASSERT_TRUE(
      succeeds(while_network_runs([&] { return publisher.wait_for_subscribers(1, kPatience); })));
  EXPECT_TRUE(fails_with(wait_for(publisher, 2, 300ms), ErrorCode::timeout, "1 subscribers"));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  ASSERT_TRUE(settles(publisher, 1));
  EXPECT_FALSE(own.recv(kPatience).value().plain);
  EXPECT_EQ(own.stats().plain_received, 0U);
  EXPECT_TRUE(fails_with(own.recv(0ms), ErrorCode::timeout, "nothing came"));
}

// No router answers when the subscriber is declared.
TEST_F(PlainZenohPeers, AreHeardOnceARouterAnswers) {
  Program& motor = start("motor");
  router_answers_ = false;
  Subscriber early = Subscriber::declare(motor.node, "sensors/*", {.hears_plain = true}).value();
  Subscriber second = Subscriber::declare(motor.node, "sensors/imu", {.hears_plain = true}).value();
  put("sensors/imu", a_number(1));
  EXPECT_TRUE(fails_with(early.recv(0ms), ErrorCode::timeout, "plain Zenoh peers"));
  router_answers_ = true;
  std::uint8_t n = 1;
  for (Subscriber* const subscriber : {&early, &second}) {
    EXPECT_TRUE(eventually([&] { return subscriber->stats().plain_received > 0; },
                           [&] {
                             put("sensors/imu", a_number(++n));
                             (void)subscriber->recv(1ms);
                           }));
  }
}

TEST_F(PlainZenohPeers, AreCountedWhereThereIsNoRoomAndToldOfOnceAKey) {
  Program& motor = start("motor");
  const Told told(motor.node);
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*", {.window = 1, .hears_plain = true}).value();
  network_.set_room(false);
  for (int n = 0; n < 3; ++n) put("sensors/imu", a_number(1));
  put("sensors/eye", a_number(1));
  network_.set_room(true);
  EXPECT_EQ(subscriber.stats().plain_dropped, 4U);
  for (std::uint8_t n = 1; n <= 3; ++n) put("sensors/imu", a_number(n));
  EXPECT_EQ(subscriber.stats().plain_dropped, 6U) << "the window counts as well";
  EXPECT_EQ(number_in(subscriber.recv(kPatience).value()), 3);
  const auto events = [&] { return told.of(FabricEventKind::plain_dropped); };
  ASSERT_TRUE(eventually([&] { return events().size() >= 2; }));
  ASSERT_EQ(events().size(), 2U);
  EXPECT_EQ(events()[0].key, "sensors/imu");
  EXPECT_EQ(events()[0].node, "a plain Zenoh peer");
  EXPECT_EQ(events()[1].key, "sensors/eye");
}

TEST_F(PlainZenohPeers, ThatPutSomethingElseAreRefused) {
  Program& motor = start("motor");
  Told told(motor.node);
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*", {.hears_plain = true}).value();
  put("sensors/imu", storage_of("no safetensors"));
  put("sensors/imu", storage_of(""));
  put("sensors/imu", a_number(1), std::string_view("tendon\0\1", 8));  // the rest is missing
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
      Subscriber::declare(motor.node, "sensors/*", {.schema = schema, .hears_plain = true}).value();
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
      Subscriber::declare(motor.node, "sensors/*", {.window = 4, .hears_plain = true}).value();
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

// Other forms of their messages

TEST_F(PlainZenohPeers, AreTakenAsBytesWithTheirEncoding) {
  Program& motor = start("motor");
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*",
                          {.hears_plain = true, .plain_content = PlainContent::bytes})
          .value();
  const auto next = [&] { return subscriber.recv(kPatience).value(); };
  put_as("application/json", R"({"n": 1})");
  const Sample json = next();
  EXPECT_TRUE(json.plain);
  EXPECT_FALSE(json.tensors.has_value());
  EXPECT_EQ(json.encoding, "application/json");
  EXPECT_EQ(as_text(json.bytes.bytes()), R"({"n": 1})");
  put_as("", "");
  const Sample nothing = next();
  EXPECT_EQ(nothing.encoding, "zenoh/bytes");
  EXPECT_EQ(nothing.bytes.size_bytes(), 0U);
  put("sensors/imu", a_number(7));
  const Sample file = next();
  EXPECT_FALSE(file.tensors.has_value());
  EXPECT_EQ(as_text(file.bytes.bytes()), as_text(a_number(7).bytes()));
  EXPECT_EQ(subscriber.stats().plain_received, 3U);
  EXPECT_EQ(subscriber.stats().plain_refused, 0U);
}

TEST_F(PlainZenohPeers, AreTakenAsTensorsWhereTheyPutSome) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "sensors/eye").value();
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*",
                          {.hears_plain = true, .plain_content = PlainContent::both})
          .value();
  const auto next = [&] { return subscriber.recv(kPatience).value(); };
  put({"sensors/imu", a_number(7), {}, "application/octet-stream;safetensors"});
  const Sample file = next();
  EXPECT_EQ(number_in(file), 7);
  EXPECT_EQ(file.encoding, "application/octet-stream;safetensors");
  EXPECT_EQ(file.bytes.size_bytes(), 0U);
  put_as("text/plain", "a cup");
  const Sample text = next();
  EXPECT_FALSE(text.tensors.has_value());
  EXPECT_EQ(as_text(text.bytes.bytes()), "a cup");
  EXPECT_EQ(text.encoding, "text/plain");
  ASSERT_TRUE(succeeds(publisher.publish(as_bytes("of Tendon"))));
  const Sample own = next();
  EXPECT_FALSE(own.plain);
  EXPECT_EQ(own.encoding, "");
  EXPECT_EQ(subscriber.stats().plain_refused, 0U);
}

TEST_F(PlainZenohPeers, PutBytesThatHaveNoSchema) {
  Program& motor = start("motor");
  const auto schema = Schema::make({{"n", DType::u8, {1}}}).value();
  for (const PlainContent content : {PlainContent::bytes, PlainContent::both}) {
    EXPECT_TRUE(fails_with(
        Subscriber::declare(motor.node, "sensors/*",
                            {.schema = schema, .hears_plain = true, .plain_content = content}),
        ErrorCode::invalid_argument, "plain_content"));
  }
}

TEST_F(PlainZenohPeers, PutBytesUpToALimit) {
  Program& motor = start("motor");
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*",
                          {.hears_plain = true, .plain_content = PlainContent::bytes})
          .value();
  put("sensors/imu", storage_of(std::string(kMaxPlainBytes + 1, 'x')));
  put_as(std::string(kMaxEncodingBytes + 1, 'e'), "too long");
  put_as("\xff", "not UTF-8");
  EXPECT_EQ(subscriber.stats().plain_refused, 3U);
  put_as(std::string(kMaxEncodingBytes, 'e'), "just right");
  EXPECT_EQ(subscriber.recv(kPatience).value().encoding.size(), kMaxEncodingBytes);
  for (int i = 0; i < 3; ++i) put("sensors/imu", storage_of(std::string(kMaxPlainBytes, 'x')));
  EXPECT_EQ(subscriber.stats().plain_dropped, 1U);
  EXPECT_EQ(subscriber.recv(kPatience).value().bytes.size_bytes(), kMaxPlainBytes);
  EXPECT_EQ(subscriber.stats().plain_refused, 3U);
}

TEST_F(PlainZenohPeers, ThatDeleteAKeyAreToldOfOnce) {
  Program& motor = start("motor");
  Told told(motor.node);
  Subscriber subscriber =
      Subscriber::declare(motor.node, "sensors/*", {.hears_plain = true}).value();
  const auto keys = [&] {
    std::vector<std::string> found;
    for (const FabricEvent& event : told.of(FabricEventKind::plain_deleted))
      found.push_back(event.key);
    return found;
  };
  const auto come_to = [&](std::size_t count) {
    return eventually([&] { return keys().size() == count; });
  };
  put("sensors/imu", a_number(1));
  delete_key("sensors/imu");
  delete_key("motor/imu");  // nobody subscribed to it
  delete_key("sensors/imu");
  delete_key("sensors/eye");
  ASSERT_TRUE(come_to(2));
  put("sensors/imu", a_number(2));
  delete_key("sensors/imu");
  ASSERT_TRUE(come_to(3));
  EXPECT_THAT(keys(), ElementsAre("sensors/imu", "sensors/eye", "sensors/imu"));
  EXPECT_EQ(told.of(FabricEventKind::plain_deleted)[0].node, "a plain Zenoh peer");
  EXPECT_EQ(number_in(subscriber.recv(kPatience).value()), 1) << "a delete takes nothing back";
  EXPECT_EQ(number_in(subscriber.recv(kPatience).value()), 2);
  EXPECT_TRUE(fails_with(subscriber.recv(Deadline::now()), ErrorCode::timeout));
  EXPECT_EQ(subscriber.stats().plain_deleted, 4U);
  EXPECT_EQ(subscriber.stats().plain_refused, 0U);
}

// A bare publisher

TEST_F(PlainZenohPeers, GetBytesOfABarePublisherAsFromAnyProgram) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto declare_bare = [&](PublisherOptions options) {
    options.plain_peers = PlainPeers::bare;
    return Publisher::declare(vision.node, "sensors/imu", options);
  };
  Publisher bare = declare_bare({.plain_bytes = 100, .encoding = "application/json"}).value();
  const SubscriberOptions hears{.hears_plain = true, .plain_content = PlainContent::both};
  Subscriber other = Subscriber::declare(motor.node, "sensors/*", hears).value();
  Subscriber same = Subscriber::declare(vision.node, "sensors/*", hears).value();
  Subscriber linked = Subscriber::declare(motor.node, "sensors/*").value();
  EXPECT_EQ(bare.publish(as_bytes("early")).value().sequence, 1U) << "as any put";
  network_.run_until_quiet();
  EXPECT_EQ(other.recv(kPatience).value().encoding, "application/json");
  EXPECT_EQ(same.recv(kPatience).value().encoding, "application/json");
  const auto subscriber = listen("sensors/*");
  const Published published = bare.publish(as_bytes("{}")).value();
  network_.run_until_quiet();
  EXPECT_EQ(published.sequence, 2U);
  EXPECT_EQ(published.shown, 1U);
  EXPECT_TRUE(published.lagging.empty());
  ASSERT_EQ(came_.size(), 1U);
  EXPECT_EQ(as_text(came_[0].payload.bytes()), "{}");
  EXPECT_EQ(came_[0].encoding, "application/json");
  EXPECT_EQ(came_[0].attachment.size_bytes(), 0U);
  for (Subscriber* const one : {&other, &same}) {
    const Sample sample = one->recv(kPatience).value();
    EXPECT_TRUE(sample.plain);
    EXPECT_EQ(as_text(sample.bytes.bytes()), "{}");
  }
  TensorDict cup;
  cup.set("n", Tensor::of<std::uint8_t>({1}, {9}));
  EXPECT_EQ(bare.publish(cup).value().sequence, 3U);
  network_.run_until_quiet();
  EXPECT_EQ(number_in(other.recv(kPatience).value()), 9);
  EXPECT_EQ(came_[1].encoding, "application/octet-stream;safetensors");
  EXPECT_TRUE(vision.node.publishers().empty()) << "it is not announced";
  EXPECT_TRUE(fails_with(linked.recv(Deadline::now()), ErrorCode::timeout));
  EXPECT_EQ(linked.stats().publishers, 0U);

  EXPECT_TRUE(fails_with(bare.publish(as_bytes(std::string(101, 'x'))),
                         ErrorCode::message_too_large, "plain_bytes is 100"));
  EXPECT_TRUE(fails_with(bare.loan(cup.schema()), ErrorCode::not_supported, "bare"));
  EXPECT_EQ(bare.stats().published, 3U);
  EXPECT_EQ(bare.stats().plain_put, 3U);
  EXPECT_EQ(bare.stats().subscribers, 0U);
  ASSERT_TRUE(succeeds(bare.close(kPatience)));
  EXPECT_TRUE(fails_with(bare.publish(as_bytes("late")), ErrorCode::pipe_closed));

  const std::string longest(kMaxEncodingBytes, 'e');
  EXPECT_TRUE(succeeds(declare_bare({.encoding = longest})));
  for (const std::string& wrong : {longest + "e", std::string("text\nplain"), std::string("\xff")})
    EXPECT_TRUE(
        fails_with(declare_bare({.encoding = wrong}), ErrorCode::invalid_argument, "encoding"));
}

TEST_F(PlainZenohPeers, SeeTheEncodingThatAPublisherNames) {
  Program& vision = start("vision");
  Publisher publisher =
      Publisher::declare(vision.node, "vision/objects", {.encoding = "text/plain"}).value();
  const auto subscriber = listen("**");
  ASSERT_TRUE(succeeds(publisher.publish(as_bytes("a cup"))));
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  network_.run_until_quiet();
  ASSERT_EQ(came_.size(), 1U);
  EXPECT_EQ(came_[0].encoding, "text/plain");
  EXPECT_GT(came_[0].attachment.size_bytes(), 0U);
}

// Waiting for plain peers

TEST_F(PlainZenohPeers, AreTogetherOneSubscriberToWaitFor) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  EXPECT_TRUE(fails_with(wait_for(publisher, 1, kBriefly), ErrorCode::timeout, "0 subscribers"));
  const auto first = listen("vision/*");
  const auto second = listen("**");
  ASSERT_TRUE(succeeds(wait_for(publisher, 1)));
  EXPECT_TRUE(fails_with(wait_for(publisher, 2, kBriefly), ErrorCode::timeout, "of 2"));
  const Subscriber linked = Subscriber::declare(motor.node, "vision/*").value();
  ASSERT_TRUE(succeeds(wait_for(publisher, 2)));
  // The first sample reaches them, and leaves before close() returns.
  ASSERT_TRUE(succeeds(publisher.publish(as_bytes("first"))));
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  network_.run_until_quiet();
  ASSERT_EQ(came_.size(), 2U);
  EXPECT_EQ(as_text(came_[0].payload.bytes()), "first");
}

TEST_F(PlainZenohPeers, AreWaitedForWhereTheyComeLater) {
  Program& vision = start("vision");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Publisher bare =
      Publisher::declare(vision.node, "vision/objects", {.plain_peers = PlainPeers::bare}).value();
  for (Publisher* const one : {&publisher, &bare}) {
    ZenohPort::Handle late;
    network_.after(20ms, [&] {
      late = peer_->subscribe(key("vision/*"), [](const ZenohMessage&) {}).value();
    });
    ASSERT_TRUE(succeeds(wait_for(*one, 1)));
    late = nullptr;
    network_.run_until_quiet();
    EXPECT_TRUE(fails_with(wait_for(*one, 1, kBriefly), ErrorCode::timeout));
  }
}

TEST_F(PlainZenohPeers, AreNotTheSubscribersOfTendonThatListenToThem) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  // A stranger announces a subscriber and subscribes, but opens no channel.
  const auto session = network_.open();
  Context stranger = Context::create({.name = "stranger"}).value();
  auto announced = session->token(
      to_key(detail::EntityAnnouncement{.domain = "another",
                                        .kind = detail::EntityKind::subscriber,
                                        .context = detail::ContextCore::of(stranger)->id(),
                                        .entity = 1,
                                        .schema = {},
                                        .qos = {},
                                        .hears_plain = true,
                                        .topic = key("vision/**")})
          .value());
  auto listening = session->subscribe(key("vision/**"), [](const ZenohMessage&) {}).value();
  ASSERT_TRUE(announced.has_value());
  EXPECT_TRUE(fails_with(wait_for(publisher, 1, 300ms), ErrorCode::timeout, "0 subscribers"));
  const auto plain = listen("vision/objects");
  EXPECT_TRUE(fails_with(wait_for(publisher, 1, 300ms), ErrorCode::timeout, "0 subscribers"));
  listening = nullptr;
  *announced = nullptr;
  ASSERT_TRUE(succeeds(wait_for(publisher, 1)));
  // A subscriber of this domain counts by its channel, once.
  const Subscriber hears =
      Subscriber::declare(motor.node, "vision/*", {.hears_plain = true}).value();
  ASSERT_TRUE(succeeds(wait_for(publisher, 1)));
  ASSERT_TRUE(eventually([&] { return publisher.stats().subscribers == 1; }));
}

TEST_F(PlainZenohPeers, AreNotCountedForASubscriberThatCountsByItsChannel) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber hears = Subscriber::declare(motor.node, "vision/*", {.hears_plain = true}).value();
  network_.run_until_quiet();
  ASSERT_TRUE(succeeds(wait_for(publisher, 1)));
  ASSERT_EQ(publisher.stats().subscribers, 1U) << "it is its channel that counts";
  EXPECT_TRUE(fails_with(wait_for(publisher, 2, 300ms), ErrorCode::timeout, "1 subscribers of 2"));
}

TEST_F(PlainZenohPeers, HaveNoAge) {
  Program& motor = start("motor", {"sensors/**"});
  EXPECT_TRUE(
      fails_with(Subscriber::declare(motor.node, "sensors/*", {.max_age = 1s, .hears_plain = true}),
                 ErrorCode::invalid_argument, "no age"));
  Subscriber commands = Subscriber::declare(motor.node, "sensors/*", {.max_age = 1s}).value();
  put("sensors/imu", a_number(1));
  EXPECT_TRUE(fails_with(commands.recv(Deadline::now()), ErrorCode::timeout));
}

TEST_F(PlainZenohPeers, AreHeardWhereTheNodeSaysSo) {
  Program& motor = start("motor", {"sensors/**", "eye"});
  Subscriber inside = Subscriber::declare(motor.node, "sensors/*").value();
  Subscriber larger = Subscriber::declare(motor.node, "**").value();
  Subscriber unwilling =
      Subscriber::declare(motor.node, "sensors/*", {.hears_plain = false}).value();
  put("sensors/imu", a_number(1));
  EXPECT_TRUE(succeeds(inside.recv(kPatience)));
  EXPECT_TRUE(fails_with(larger.recv(Deadline::now()), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(unwilling.recv(Deadline::now()), ErrorCode::timeout));
}

TEST_F(PlainZenohPeers, AreNotHeardWithoutZenoh) {
  Context context = Context::create({.name = "alone"}).value();
  const auto join = [&](std::vector<std::string> plain) {
    return Node::join(
        context,
        {.name = "alone", .peers = std::vector<std::string>(), .plain_keys = std::move(plain)},
        kPatience);
  };
  EXPECT_TRUE(fails_with(join({"a/**"}), ErrorCode::not_supported, "routers"));
  EXPECT_TRUE(fails_with(join({"a//b"}), ErrorCode::invalid_argument));
  Node node = join({}).value();
  EXPECT_TRUE(fails_with(Subscriber::declare(node, "a", {.hears_plain = true}),
                         ErrorCode::not_supported, "routers"));
  EXPECT_TRUE(fails_with(node.has_plain_subscribers("a", kPatience), ErrorCode::not_supported));
  EXPECT_TRUE(succeeds(Publisher::declare(node, "a")));  // `automatic` needs no peers
  EXPECT_TRUE(fails_with(Publisher::declare(node, "a", {.plain_peers = PlainPeers::bare}),
                         ErrorCode::not_supported, "routers"));
}

}  // namespace
}  // namespace tendon::test
