// SPDX-License-Identifier: Apache-2.0
// Peers of a node that break its rules: each is told or ignored, and harms nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "core/peer_error.hpp"
#include "fabric/discovery/discovery_channel.hpp"
#include "fabric/discovery/node_environment.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/ports/call_words.hpp"
#include "fabric/ports/subscription_request.hpp"
#include "fabric/samples/sample_header.hpp"
#include "fabric/zenoh/zenoh_port.hpp"
#include "runtime/reach.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::CallOpening;
using detail::CallWord;
using detail::CallWordKind;
using detail::ContextCore;
using detail::Descriptor;
using detail::DiscoveryWord;
using detail::Incoming;
using detail::Link;
using detail::MessageKind;
using detail::Opening;
using detail::Purpose;
using detail::SampleHeader;
using detail::SubscriptionRequest;
using testing::ElementsAre;

/// Keeps the messages of a node on one pipe.
class Ear final : public detail::MessageSink {
 public:
  void on_message(Incoming&& incoming) override {
    const std::lock_guard lock(mutex_);
    const Descriptor& descriptor = incoming.descriptor;
    ++counts_[descriptor.kind];
    if (descriptor.kind == MessageKind::credit) taken_ = descriptor.sequence;
    if (descriptor.kind != MessageKind::error) return;
    code_ = detail::code_from_peer(descriptor.tag, detail::PeerSays::pipe);
    text_ = as_text({incoming.body.data, descriptor.body_bytes()});
  }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor&) override { return true; }
  void on_transfer_ended(const detail::Transfer&) override {}
  Result<void> on_segment(std::uint32_t, std::shared_ptr<detail::Segment>) override { return {}; }
  void on_link_failed(const Error&) override {}

  [[nodiscard]] int count(MessageKind kind) {
    const std::lock_guard lock(mutex_);
    return counts_[kind];
  }
  /// Returns how many messages the node has reported as taken.
  [[nodiscard]] std::uint64_t taken() {
    const std::lock_guard lock(mutex_);
    return taken_;
  }
  [[nodiscard]] testing::AssertionResult was_told(ErrorCode code, std::string_view text) {
    if (!eventually([&] { return count(MessageKind::error) != 0; }))
      return testing::AssertionFailure() << "it was told nothing";
    const std::lock_guard lock(mutex_);
    if (code_ == code && text_.find(text) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "it was told: " << text_;
  }

 private:
  std::mutex mutex_;
  std::map<MessageKind, int> counts_;
  std::uint64_t taken_ = 0;
  std::optional<ErrorCode> code_;
  std::string text_;
};

/// A pipe on which a stranger sends arbitrary messages.
struct Mouth {
  std::shared_ptr<Link> link;
  std::uint32_t pipe = 0;
  std::shared_ptr<Ear> ear;
  std::uint64_t sequence = 0;

  void say(Descriptor descriptor, Bytes payload, Bytes header = {}) {
    descriptor.pipe = pipe;
    descriptor.sequence = ++sequence;
    descriptor.payload_bytes = payload.size();
    descriptor.header_bytes = static_cast<std::uint16_t>(header.size());
    const detail::BodyPart part{0, payload, nullptr, payload.size()};
    detail::SendOp op;
    op.descriptor = descriptor;
    if (!payload.empty()) op.parts = {&part, 1};
    op.header = header;
    ASSERT_TRUE(eventually([&] {
      const auto sent = link->send(op, Deadline::never());
      return !sent || *sent == detail::Sent::done;
    }));
  }
  /// Announces within the window.
  void announce(DiscoveryWord change, std::string_view key) {
    ASSERT_TRUE(eventually([&] { return sequence < ear->taken() + kPipeWindowMessages; }));
    Descriptor word;
    word.kind = MessageKind::bytes;
    word.tag = static_cast<std::uint32_t>(change);
    say(word, as_bytes(key));
  }
};

/// Lets a node open channels at a stranger.
class Stall final : public detail::OpenHandler {
 public:
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<detail::MessageSink>> on_open(std::shared_ptr<Link> link,
                                                       const Descriptor& open,
                                                       Bytes said) override {
    const std::lock_guard lock(mutex_);
    opened_.push_back({std::move(link), open.pipe, std::make_shared<Ear>()});
    said_.emplace_back(said.begin(), said.end());
    return std::static_pointer_cast<detail::MessageSink>(opened_.back().ear);
  }
  void on_context_closed() override {}

  /// Returns the next channel that was opened.
  [[nodiscard]] Mouth next() {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return opened_.size() > taken_;
    }));
    const std::lock_guard lock(mutex_);
    return opened_.at(taken_++);
  }
  [[nodiscard]] SubscriptionRequest last_request() {
    const std::lock_guard lock(mutex_);
    return detail::read_subscription_request(said_.back()).value();
  }

 private:
  std::mutex mutex_;
  std::vector<Mouth> opened_;
  std::vector<std::vector<std::byte>> said_;
  std::size_t taken_ = 0;
};

class Strangers : public PipeTest {
 protected:
  explicit Strangers(std::chrono::milliseconds lease = kLongLease) : lease_(lease) {
    EXPECT_TRUE(succeeds(stranger().purposes().add(
        Purpose::fabric, {.handler = stall_, .profile = Profile::local})));
    EXPECT_TRUE(succeeds(
        stranger().purposes().add(Purpose::call, {.handler = stall_, .profile = Profile::local})));
  }
  [[nodiscard]] static Context make(std::string_view name, const Way& way,
                                    std::chrono::milliseconds lease) {
    return Context::create({.name = std::string(name), .transport = way.transport, .lease = lease})
        .value();
  }
  [[nodiscard]] ContextCore& stranger() const { return *ContextCore::of(stranger_); }
  /// Opens a pipe from the stranger to the node.
  [[nodiscard]] Mouth open(Purpose purpose, Bytes header = {}) {
    const std::vector<std::string> addresses{detail::unix_address_of(node_context_.id()).value()};
    auto link =
        detail::try_to_reach(stranger(), node_context_.id(), addresses, {Profile::local}, kPatience)
            .link.value();
    Mouth mouth{link, 0, std::make_shared<Ear>()};
    EXPECT_TRUE(succeeds(stranger().open_pipe(*link, Opening{.purpose = purpose, .header = header},
                                              [&](std::uint32_t pipe) {
                                                mouth.pipe = pipe;
                                                return mouth.ear;
                                              })));
    return mouth;
  }
  [[nodiscard]] std::string node_key(std::string_view name) const {
    const auto key = detail::to_key(detail::NodeAnnouncement{
                                        .domain = "brain",
                                        .name = std::string(name),
                                        .context = stranger_.id(),
                                        .start = 1,
                                        .unix_on = {},
                                        .addresses = {Address::parse("127.0.0.1:9").value()}})
                         .value();
    return key.text();
  }
  [[nodiscard]] static std::string entity_key(detail::EntityKind kind, std::uint32_t entity,
                                              std::string_view topic, const ContextId& context) {
    const auto key =
        detail::to_key(detail::EntityAnnouncement{.domain = "brain",
                                                  .kind = kind,
                                                  .context = context,
                                                  .entity = entity,
                                                  .schema = {},
                                                  .qos = {},
                                                  .topic = KeyExpression::parse(topic).value()})
            .value();
    return key.text();
  }
  [[nodiscard]] static std::string publisher_key(std::uint32_t entity, std::string_view topic,
                                                 const ContextId& context) {
    return entity_key(detail::EntityKind::publisher, entity, topic, context);
  }
  /// Connects the node's subscriber to a publisher of the stranger, and returns its channel.
  [[nodiscard]] Mouth published() {
    discovery_ = open(Purpose::discovery);
    discovery_->announce(DiscoveryWord::came, node_key("stranger"));
    discovery_->announce(DiscoveryWord::came, publisher_key(1, "topic", stranger_.id()));
    return stall_->next();
  }
  /// Makes a responder of the stranger that the node calls, and returns its channel.
  [[nodiscard]] Mouth called() {
    discovery_ = open(Purpose::discovery);
    discovery_->announce(DiscoveryWord::came, node_key("stranger"));
    discovery_->announce(DiscoveryWord::came,
                         entity_key(detail::EntityKind::responder, 1, "plan", stranger_.id()));
    return stall_->next();
  }
  template <class Header = SampleHeader>
  [[nodiscard]] static std::vector<std::byte> header_of(const Header& header) {
    std::vector<std::byte> bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
  }
  [[nodiscard]] static Descriptor sample() {
    Descriptor descriptor;
    descriptor.kind = MessageKind::bytes;
    return descriptor;
  }

  const std::chrono::milliseconds lease_;
  Context node_context_ = make("node", way(), lease_);
  Node node_ = Node::join(node_context_,
                          {.domain = "brain", .name = "node", .peers = std::vector<std::string>{}},
                          kPatience)
                   .value();
  Subscriber subscriber_ = Subscriber::declare(node_, "topic", {.window = 4}).value();
  Context stranger_ = make("stranger", way(), kLongLease);
  const std::shared_ptr<Stall> stall_ = std::make_shared<Stall>();  // it has links of the stranger
  std::optional<Mouth> discovery_;
};
TENDON_ON_BOTH_PATHS(Strangers);

// Announcements

TEST_P(Strangers, OneThatListensNowhereIsReachedByTheLinkThatItMade) {
  discovery_ = open(Purpose::discovery);
  const auto node = detail::to_key(detail::NodeAnnouncement{.domain = "brain",
                                                            .name = "stranger",
                                                            .context = stranger_.id(),
                                                            .start = 1,
                                                            .unix_on = {},
                                                            .addresses = {}})
                        .value();
  discovery_->announce(DiscoveryWord::came, node.text());
  discovery_->announce(DiscoveryWord::came, publisher_key(1, "topic", stranger_.id()));
  Mouth mouth = stall_->next();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 1}));
  EXPECT_EQ(subscriber_.recv(kPatience).value().publisher, "stranger");
}

TEST_P(Strangers, OneThatSpeaksForAnotherIsTold) {
  Mouth mouth = open(Purpose::discovery);
  mouth.announce(DiscoveryWord::came, node_key("stranger"));
  ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 2; }));
  mouth.announce(DiscoveryWord::came, publisher_key(1, "topic", node_context_.id()));
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::protocol_violation, "its own"));
  EXPECT_TRUE(eventually([&] { return node_.nodes().size() == 1; })) << "and heard no more";
}

TEST_P(Strangers, WhatIsNotKnownIsPassedOver) {
  Mouth mouth = open(Purpose::discovery);
  mouth.announce(DiscoveryWord::came, "@tendon/brain/robot/1");
  mouth.announce(DiscoveryWord::came, "\xff\xfe");
  mouth.announce(DiscoveryWord::came, "");
  mouth.announce(DiscoveryWord::went, node_key("nobody"));
  mouth.announce(DiscoveryWord::came, node_key("stranger"));
  EXPECT_TRUE(eventually([&] { return node_.nodes().size() == 2; }));
  mouth.announce(DiscoveryWord::went, node_key("stranger"));
  EXPECT_TRUE(eventually([&] { return node_.nodes().size() == 1; }));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
}

TEST_P(Strangers, AnAnnouncementNeitherOfComingNorOfGoingIsTold) {
  Mouth mouth = open(Purpose::discovery);
  mouth.announce(static_cast<DiscoveryWord>(3), node_key("stranger"));
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::protocol_violation, "neither"));
}

TEST_P(Strangers, AnAnnouncementBeyondTheLimitEndsTheChannel) {
  Mouth mouth = open(Purpose::discovery);
  mouth.announce(DiscoveryWord::came, node_key("stranger"));
  ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 2; }));
  const std::string large(kMaxKeyBytes + 1, 'a');
  mouth.announce(DiscoveryWord::came, large);
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::limit_exceeded, "4096"));
  EXPECT_TRUE(eventually([&] { return node_.nodes().size() == 1; }));
}

TEST_P(Strangers, AnnounceAtMostSoMany) {
  const Told told(node_);
  Mouth mouth = open(Purpose::discovery);
  for (std::uint32_t n = 1; n <= kMaxAnnouncements; ++n)
    mouth.announce(DiscoveryWord::came, publisher_key(n, "other", stranger_.id()));
  mouth.announce(DiscoveryWord::came, publisher_key(1, "other", stranger_.id()));
  mouth.announce(DiscoveryWord::went, publisher_key(2, "other", stranger_.id()));
  mouth.announce(DiscoveryWord::came, node_key("stranger"));
  ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 2; }));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
  mouth.announce(DiscoveryWord::came, publisher_key(2, "other", stranger_.id()));
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::limit_exceeded, "kMaxAnnouncements"));
  EXPECT_TRUE(eventually([&] { return node_.publishers().empty(); })) << "and heard no more";
  EXPECT_TRUE(eventually([&] { return !told.of(FabricEventKind::unreachable).empty(); }));
  EXPECT_THAT(told.of(FabricEventKind::unreachable).front().reason,
              testing::HasSubstr("kMaxAnnouncements"));
}

// Several pipes of one link share one limit.
TEST_P(Strangers, AnnounceAtMostSoManyOverAllTheirPipes) {
  Mouth one = open(Purpose::discovery);
  Mouth other = open(Purpose::discovery);
  for (std::uint32_t n = 1; n <= kMaxAnnouncements; ++n)
    (n % 2 == 0 ? one : other)
        .announce(DiscoveryWord::came, publisher_key(n, "other", stranger_.id()));
  for (std::uint32_t n = 1; n <= 9; ++n)
    one.announce(DiscoveryWord::came, publisher_key(n, "other", stranger_.id()));
  ASSERT_TRUE(eventually([&] { return node_.publishers().size() == kMaxAnnouncements; }));
  // A key that both announce stays while one of them announces it.
  one.announce(DiscoveryWord::went, publisher_key(1, "other", stranger_.id()));
  one.announce(DiscoveryWord::came, publisher_key(0, "other", stranger_.id()));
  EXPECT_TRUE(one.ear->was_told(ErrorCode::limit_exceeded, "kMaxAnnouncements"));
  EXPECT_TRUE(eventually([&] { return node_.publishers().size() == kMaxAnnouncements / 2; }));
  EXPECT_EQ(other.ear->count(MessageKind::error), 0);
}

// The node takes nothing of what arrived meanwhile.
TEST_P(Strangers, ThatAnnounceMoreThanTheWindowAreTold) {
  Mouth mouth = open(Purpose::discovery);
  ContextCore& node = *ContextCore::of(node_context_);
  std::latch is_busy{1};
  // Shared: the waiting thread looks at it once more after it was woken.
  const auto may_go_on = std::make_shared<std::latch>(1);
  node.schedule([&is_busy, may_go_on] {
    is_busy.count_down();
    may_go_on->wait();
  });
  is_busy.wait();
  Descriptor word;
  word.kind = MessageKind::bytes;
  const std::string key = node_key("stranger");
  // A receiver takes two windows, and 16 messages more.
  for (std::uint32_t n = 0; n < 2 * kPipeWindowMessages + 16; ++n) mouth.say(word, as_bytes(key));
  const auto take_in = [&] {
    const auto links = node.links().all();
    for (const auto& link : *links) (void)node.poll_link(*link);
  };
  for (int n = 0; n < 16; ++n) take_in();
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0) << "it may not have heard of the first window";
  mouth.say(word, as_bytes(key));
  EXPECT_TRUE(eventually([&] {
    take_in();
    return mouth.ear->count(MessageKind::error) != 0;
  }));
  may_go_on->count_down();
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::protocol_violation, "window"));
}

TEST_P(Strangers, HaveFewChannelsOfDiscovery) {
  std::vector<Mouth> mouths;
  for (int n = 0; n < 8; ++n) mouths.push_back(open(Purpose::discovery));
  Mouth further = open(Purpose::discovery);
  EXPECT_TRUE(further.ear->was_told(ErrorCode::limit_exceeded, "8"));
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = mouths.front().pipe;
  mouths.front().link->post(end);
  Mouth next = open(Purpose::discovery);
  next.announce(DiscoveryWord::came, node_key("stranger"));
  EXPECT_TRUE(eventually([&] { return node_.nodes().size() == 2; }));
  EXPECT_EQ(next.ear->count(MessageKind::error), 0);
}

TEST_P(Strangers, WhatTheyAnnouncedGoesWithTheirLink) {
  Mouth mouth = open(Purpose::discovery);
  mouth.announce(DiscoveryWord::came, node_key("stranger"));
  ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 2; }));
  mouth.link->fail(Error{ErrorCode::peer_lost, "test", "cut"}, detail::Death::not_proved);
  EXPECT_TRUE(eventually([&] { return node_.nodes().size() == 1; }));
}

// Subscriptions

TEST_P(Strangers, ASubscriptionOfNothingIsRefused) {
  const SubscriptionRequest request{.entity = 77};
  Mouth mouth = open(Purpose::fabric, std::as_bytes(std::span(&request, 1)));
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::unreachable, "77"));
  Mouth shorter = open(Purpose::fabric, std::as_bytes(std::span(&request, 1)).first(39));
  EXPECT_TRUE(shorter.ear->was_told(ErrorCode::protocol_violation, "39"));
}

TEST_P(Strangers, ASubscriberThatLiesHarmsItselfAlone) {
  Publisher publisher = Publisher::declare(node_, "count", {.qos = {keep_last(2)}}).value();
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  const SubscriptionRequest request{
      .entity = 2,  // the subscriber of this test is 1
      .seen_incarnation = ContextCore::of(node_context_)->identity().incarnation,
      .seen_sequence = ~std::uint64_t{0}};
  Mouth mouth = open(Purpose::fabric, std::as_bytes(std::span(&request, 1)));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(4))));
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::data) == 1; }));
  Descriptor credit;
  credit.kind = MessageKind::credit;
  credit.pipe = mouth.pipe;
  credit.sequence = credit.payload_bytes = ~std::uint64_t{0} >> 1;
  mouth.link->post(credit);
  mouth.say(sample(), as_bytes("a subscriber has nothing to say"));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(5))));
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = mouth.pipe;
  for (int n = 0; n < 3; ++n) mouth.link->post(end);  // once would be enough
  EXPECT_TRUE(eventually([&] { return publisher.stats().subscribers == 0; }));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(6))));
}

// Samples

TEST_P(Strangers, SamplesOfAHonestOneCome) {
  Mouth mouth = published();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 7, .stamp = 1, .incarnation = 3}));
  Sample received = subscriber_.recv(kPatience).value();
  EXPECT_EQ(as_text(received.bytes.bytes()), "seen");
  EXPECT_EQ(received.publisher, "stranger");
  // A repeated sample is ignored. A publisher that leaves samples out without a tag lacked memory.
  mouth.say(sample(), as_bytes("again"), header_of({.sequence = 7}));
  mouth.say(sample(), as_bytes("later"), header_of({.sequence = 10, .incarnation = 3}));
  received = subscriber_.recv(kPatience).value();
  EXPECT_EQ(as_text(received.bytes.bytes()), "later");
  EXPECT_THAT(received.gaps, ElementsAre(Gap{"stranger", 3, 8, 9, GapReason::history, 1}));
}

TEST_P(Strangers, WhatIsTooOldIsInGapsWithAllElseThatIsMissing) {
  const auto half_of_uptime = std::chrono::nanoseconds(detail::boot_time_ns() / 2);
  Subscriber commands = Subscriber::declare(node_, "commands", {.max_age = half_of_uptime}).value();
  discovery_ = open(Purpose::discovery);
  discovery_->announce(DiscoveryWord::came, node_key("stranger"));
  discovery_->announce(DiscoveryWord::came, publisher_key(1, "commands", stranger_.id()));
  Mouth mouth = stall_->next();
  const auto say = [&](std::uint64_t sequence, std::uint64_t stamp, std::uint32_t tag = 0) {
    Descriptor descriptor = sample();
    descriptor.tag = tag;
    mouth.say(descriptor, as_bytes("go"), header_of({.sequence = sequence, .stamp = stamp}));
  };
  constexpr std::uint64_t kAtBoot = 0;
  const auto now = static_cast<std::uint64_t>(detail::boot_time_ns());
  say(1, kAtBoot);
  say(2, kAtBoot);
  say(5, kAtBoot, 2);
  say(6, now);
  const Sample fresh = commands.recv(kPatience).value();
  EXPECT_EQ(fresh.sequence, 6u);
  EXPECT_THAT(fresh.gaps, ElementsAre(Gap{"stranger", 0, 1, 2, GapReason::expired, 1},
                                      Gap{"stranger", 0, 3, 4, GapReason::overflow, 1},
                                      Gap{"stranger", 0, 5, 5, GapReason::expired, 1}));
  EXPECT_EQ(commands.stats().expired, 3u);
  EXPECT_EQ(commands.stats().missed, 5u);
  // A stamp that no clock shows has no age.
  say(7, ~std::uint64_t{0});
  say(8, now);
  EXPECT_THAT(commands.recv(kPatience).value().gaps,
              ElementsAre(Gap{"stranger", 0, 7, 7, GapReason::expired, 1}));
}

TEST_P(Strangers, ALostOneIsAskedForWhatFollows) {
  Mouth mouth = published();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 7, .incarnation = 3}));
  EXPECT_EQ(subscriber_.recv(kPatience).value().sequence, 7u);
  const auto text = std::string_view("come back");
  mouth.link->post(detail::error_descriptor(mouth.pipe, ErrorCode::server_busy, text),
                   as_bytes(text));
  (void)stall_->next();
  const SubscriptionRequest request = stall_->last_request();
  EXPECT_EQ(request, (SubscriptionRequest{.entity = 1,
                                          .subscriber = request.subscriber,
                                          .seen_incarnation = 3,
                                          .seen_sequence = 7}));
  EXPECT_NE(request.subscriber, 0u);
}

// Each is one missing sample; the channel continues.
TEST_P(Strangers, ASampleThatCannotBeReadIsOneGap) {
  Descriptor unknown_schema;
  unknown_schema.kind = MessageKind::data;
  unknown_schema.schema = 5;
  unknown_schema.layout = Layout::aligned;
  Descriptor schema;
  schema.kind = MessageKind::schema;
  schema.schema = 1;
  Descriptor of_bad_schema = unknown_schema;
  of_bad_schema.schema = 1;
  Mouth mouth = published();
  const auto header = [](std::uint64_t sequence) { return header_of({.sequence = sequence}); };
  mouth.say(sample(), as_bytes("seen"), header(1));
  EXPECT_EQ(subscriber_.recv(kPatience).value().sequence, 1u);
  std::uint64_t sequence = 1;
  const auto breaks_one = [&](auto say) {
    ++sequence;
    say();
    mouth.say(sample(), as_bytes("good"), header(++sequence));
    const Sample good = subscriber_.recv(kPatience).value();
    EXPECT_EQ(good.sequence, sequence);
    EXPECT_THAT(good.gaps, ElementsAre(Gap{"stranger", 0, sequence - 1, sequence - 1,
                                           GapReason::undecodable, 1}));
  };
  breaks_one([&] { mouth.say(sample(), as_bytes("no header")); });
  breaks_one([&] { mouth.say(sample(), as_bytes("short"), Bytes(header(sequence)).first(39)); });
  breaks_one(
      [&] { mouth.say(sample(), as_bytes("zero"), std::vector<std::byte>(sizeof(SampleHeader))); });
  breaks_one([&] { mouth.say(unknown_schema, as_bytes("what"), header(sequence)); });
  breaks_one([&] {
    mouth.say(schema, as_bytes("no schema"));
    mouth.say(of_bad_schema, as_bytes("what"), header(sequence));
  });
  EXPECT_EQ(subscriber_.stats().undecodable, 5u);
  EXPECT_EQ(subscriber_.stats().violations, 0u);
  // Its slots and its window are returned: far more than one window of them pass.
  for (int n = 0; n < 100; ++n) breaks_one([&] { mouth.say(sample(), as_bytes("no header")); });
}

// Nothing says which sample it is, and none was seen before: no gap can name it.
TEST_P(Strangers, AFirstSampleThatCannotBeReadIsCounted) {
  Mouth mouth = published();
  mouth.say(sample(), as_bytes("no header"));
  mouth.say(sample(), as_bytes("good"), header_of({.sequence = 2}));
  EXPECT_TRUE(subscriber_.recv(kPatience).value().gaps.empty());
  EXPECT_EQ(subscriber_.stats().undecodable, 1u);
}

TEST_P(Strangers, AChannelThatItsPublisherBrokeIsOpenedAgain) {
  const auto break_it = [&](Mouth& mouth, int how) {
    if (how == 0) {  // beyond the window, twice as many
      Descriptor schema;
      schema.kind = MessageKind::schema;
      schema.schema = 1;
      for (int n = 0; n < 64; ++n) mouth.say(schema, as_bytes("x"));
      return;
    }
    mouth.sequence = 0;
    mouth.say(sample(), as_bytes("a"), header_of({.sequence = 8}));
    mouth.sequence = 0;
    mouth.say(sample(), as_bytes("the same number"), header_of({.sequence = 9}));
  };
  Mouth mouth = published();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 7, .incarnation = 3}));
  EXPECT_EQ(subscriber_.recv(kPatience).value().sequence, 7u);
  for (int how = 0; how <= 1; ++how) {
    SCOPED_TRACE(how);
    const auto broken = subscriber_.stats().violations;
    break_it(mouth, how);
    // Nobody takes a sample meanwhile: it may be one of those that are requested again.
    ASSERT_TRUE(eventually([&] { return subscriber_.stats().violations == broken + 1; }));
    mouth = stall_->next();
    EXPECT_EQ(stall_->last_request().seen_sequence, 7u);
  }
  mouth.say(sample(), as_bytes("good"), header_of({.sequence = 12, .incarnation = 3}));
  const Sample good = subscriber_.recv(kPatience).value();
  EXPECT_THAT(good.gaps, ElementsAre(Gap{"stranger", 3, 8, 11, GapReason::reconnect, 1}));
}

// Samples that arrived over the channel and were not taken are lost with it.
TEST_P(Strangers, WhatABrokenChannelHeldIsAskedForAgain) {
  Mouth mouth = published();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 7, .incarnation = 3}));
  EXPECT_EQ(subscriber_.recv(kPatience).value().sequence, 7u);
  const Told told(node_);
  discovery_->announce(DiscoveryWord::came, publisher_key(2, "topic", stranger_.id()));
  Mouth other = stall_->next();
  for (const std::uint64_t sequence : {8u, 9u})
    mouth.say(sample(), as_bytes("new"), header_of({.sequence = sequence, .incarnation = 3}));
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = other.pipe;
  other.link->post(end);  // so the subscriber checks the progress of each stream
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::ended).size() == 1; }));
  mouth.sequence = 0;
  mouth.say(sample(), as_bytes("the same number"), header_of({.sequence = 10}));
  mouth = stall_->next();
  EXPECT_EQ(stall_->last_request().seen_sequence, 7u);
  mouth.say(sample(), as_bytes("new"), header_of({.sequence = 8, .incarnation = 3}));
  const Sample eighth = subscriber_.recv(kPatience).value();
  EXPECT_EQ(eighth.sequence, 8u);
  EXPECT_TRUE(eighth.gaps.empty());
}

// A node that no announcement names, or names any more.
TEST_P(Strangers, AreNeverWithoutAName) {
  const Told told(node_);
  Subscriber typed =
      Subscriber::declare(node_, "typed/*", {.schema = numbered(1).schema()}).value();
  const auto mismatched = [&](std::uint32_t entity) {
    TensorDict other;
    other.set("other", Tensor::of<float>({1}, {1}));
    const auto key =
        detail::to_key(detail::EntityAnnouncement{.domain = "brain",
                                                  .kind = detail::EntityKind::publisher,
                                                  .context = stranger_.id(),
                                                  .entity = entity,
                                                  .schema = other.schema()->hash(),
                                                  .qos = {},
                                                  .topic = KeyExpression::parse("typed/x").value()})
            .value();
    discovery_->announce(DiscoveryWord::came, key.text());
  };
  const auto names = [&] {
    std::vector<std::string> all;
    for (const FabricEvent& event : told.of(FabricEventKind::schema_mismatch))
      all.push_back(event.node);
    return all;
  };
  discovery_ = open(Purpose::discovery);
  mismatched(1);
  ASSERT_TRUE(eventually([&] { return names().size() == 1; }));
  EXPECT_THAT(names(), ElementsAre("?" + stranger_.id().to_string().substr(0, 8)));
  // A living link leads to it: it keeps the name that it had.
  discovery_->announce(DiscoveryWord::came, node_key("stranger"));
  discovery_->announce(DiscoveryWord::came, publisher_key(2, "topic", stranger_.id()));
  Mouth mouth = stall_->next();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 1}));
  EXPECT_EQ(subscriber_.recv(kPatience).value().publisher, "stranger");
  discovery_->announce(DiscoveryWord::went, node_key("stranger"));
  ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 1; }));
  mismatched(3);
  ASSERT_TRUE(eventually([&] { return names().size() == 2; }));
  EXPECT_EQ(names().back(), "stranger");
}

class StrangersThatReturn : public Strangers {
 protected:
  StrangersThatReturn() : Strangers(std::chrono::seconds(2)) {}
};
TENDON_ON_BOTH_PATHS(StrangersThatReturn);

// The link is lost for a lease: the stream has ended, and continues when its publisher returns.
TEST_P(StrangersThatReturn, AreTheSamePublisherBehindAGap) {
  const Told told(node_);
  Subscriber ends = Subscriber::declare(node_, "topic", {.window = 4, .ends = true}).value();
  subscriber_.close();
  Mouth mouth = published();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 7, .incarnation = 3}));
  ASSERT_EQ(ends.recv(kPatience).value().sequence, 7u);
  // Over a socket it reports its progress while it lives.
  mouth.link->post(Descriptor{.kind = MessageKind::head, .pipe = mouth.pipe, .sequence = 9});
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 8, .incarnation = 3}));
  ASSERT_EQ(ends.recv(kPatience).value().sequence, 8u);
  discovery_->announce(DiscoveryWord::went, publisher_key(1, "topic", stranger_.id()));
  discovery_->announce(DiscoveryWord::went, node_key("stranger"));
  ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 1; }));
  mouth.link->fail(Error{ErrorCode::peer_lost, "test", "cut"}, detail::Death::not_proved);
  const Sample end = ends.recv(kPatience).value();
  ASSERT_TRUE(end.ended);
  EXPECT_EQ(end.ended->publisher, "stranger") << "its name stays, whatever is announced";
  EXPECT_EQ(end.ended->reason, EndReason::lost);
  EXPECT_FALSE(end.ended->exact);
  EXPECT_EQ(end.ended->last_seen, 8u);
  EXPECT_EQ(end.ended->last_published, 9u);
  EXPECT_THAT(end.gaps, ElementsAre(Gap{"stranger", end.incarnation, 9, 9, GapReason::died, 1}));
  EXPECT_EQ(told.of(FabricEventKind::came).size(), 1u);
  mouth = published();
  EXPECT_EQ(stall_->last_request().seen_sequence, 9u);
  EXPECT_TRUE(eventually([&] { return told.of(FabricEventKind::came).size() == 2; }));
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 13, .incarnation = 3}));
  EXPECT_THAT(ends.recv(kPatience).value().gaps,
              ElementsAre(Gap{"stranger", 3, 10, 12, GapReason::reconnect, 1}));
}

// A publisher that refuses causes another end than a lost link.
TEST_P(StrangersThatReturn, AfterARefusalAreToldAsRefused) {
  const Told told(node_);
  Mouth mouth = published();
  mouth.say(sample(), as_bytes("seen"), header_of({.sequence = 7}));
  ASSERT_EQ(subscriber_.recv(kPatience).value().sequence, 7u);
  discovery_->announce(DiscoveryWord::went, publisher_key(1, "topic", stranger_.id()));
  discovery_->announce(DiscoveryWord::went, node_key("stranger"));
  ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 1; }));
  const auto text = std::string_view("no more of it");
  mouth.link->post(detail::error_descriptor(mouth.pipe, ErrorCode::resource_exhausted, text),
                   as_bytes(text));
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::ended).empty(); }));
  const Ended ended = told.of(FabricEventKind::ended).front().ended.value();
  EXPECT_EQ(ended.reason, EndReason::refused);
  EXPECT_EQ(ended.last_published, 7u);
  EXPECT_FALSE(ended.exact);
}

// Callers

class StrangeCallers : public Strangers {
 protected:
  /// Opens a channel to the node's responder, on which the stranger knows a schema by number 1.
  [[nodiscard]] Mouth calling() {
    Mouth mouth = open(Purpose::call, std::as_bytes(std::span(&opening_, 1)));
    Descriptor schema;
    schema.kind = MessageKind::schema;
    schema.schema = 1;
    mouth.say(schema, numbered(1).schema()->encoding());
    return mouth;
  }
  [[nodiscard]] static Descriptor request() {
    Descriptor descriptor;
    descriptor.kind = MessageKind::data;
    descriptor.schema = 1;
    descriptor.layout = Layout::aligned;
    return descriptor;
  }
  static void ask(Mouth& mouth, std::uint64_t id) {
    mouth.say(request(), payload(), header_of(CallWord{.id = id, .left_ns = CallWord::kNever}));
  }
  static void give_up(const Mouth& mouth, std::uint64_t id) {
    mouth.link->post(Descriptor{.kind = MessageKind::cancel, .pipe = mouth.pipe, .sequence = id});
  }
  [[nodiscard]] static Bytes payload() {
    static const std::vector<std::byte> packed = [] {
      const TensorDict dict = numbered(7);
      std::vector<std::byte> bytes(dict.schema()->layout(Layout::aligned).total_bytes);
      detail::pack_piece(dict, Layout::aligned, 0, bytes);
      return bytes;
    }();
    return packed;
  }

  std::atomic<bool> may_answer_{false};
  Responder responder_ =
      Responder::declare(
          node_, "plan",
          [this](const Request& request) -> Result<TensorDict> {
            EXPECT_TRUE(eventually([&] { return may_answer_ || request.cancelled(); }));
            return request.tensors();
          },
          {.handlers = 1})
          .value();
  const CallOpening opening_{.entity = 2};  // the subscriber of these tests is 1
};
TENDON_ON_BOTH_PATHS(StrangeCallers);

TEST_P(StrangeCallers, OfNothingAreRefused) {
  const CallOpening nobody{.entity = 77};
  Mouth mouth = open(Purpose::call, std::as_bytes(std::span(&nobody, 1)));
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::unreachable, "77"));
  Mouth shorter = open(Purpose::call, std::as_bytes(std::span(&opening_, 1)).first(7));
  EXPECT_TRUE(shorter.ear->was_told(ErrorCode::protocol_violation, "7"));
}

TEST_P(StrangeCallers, GetOneAnswerForEachRequest) {
  Mouth mouth = calling();
  ask(mouth, 9);
  ask(mouth, 3);
  ASSERT_TRUE(eventually([&] { return responder_.stats().waiting == 1; }));
  give_up(mouth, 3);
  give_up(mouth, 4);  // there is no such call
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::bytes) == 1; }));
  may_answer_ = true;
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::data) == 1; }));
  give_up(mouth, 9);  // too late
  ask(mouth, 9);      // its number is free again
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::data) == 2; }));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
  EXPECT_EQ(responder_.stats().cancelled, 1u);
}

TEST_P(StrangeCallers, ThatBreakTheProtocolAreToldAndStopped) {
  const auto header = header_of(CallWord{.id = 1, .left_ns = CallWord::kNever});
  const auto break_it = [&](Mouth& mouth, int how) {
    Descriptor descriptor = request();
    switch (how) {
      case 0:
        return mouth.say(descriptor, payload(), Bytes(header).first(23));
      case 1:
        return mouth.say(descriptor, payload(), header_of(CallWord{.id = 0}));
      case 2:
        return mouth.say(descriptor, payload(),
                         header_of(CallWord{.id = 1, .kind = CallWordKind::answer}));
      case 3:
        return mouth.say(descriptor, payload(),
                         header_of(CallWord{.id = 1, .kind = static_cast<CallWordKind>(99)}));
      case 4:
        descriptor = sample();
        return mouth.say(descriptor, payload(), header);
      case 5:
        ask(mouth, 1);
        return ask(mouth, 1);
      case 6:
        for (int n = 0; n < 1000; ++n) give_up(mouth, 1);
        return mouth.say(descriptor, payload(), Bytes(header).first(1));
      default:
        mouth.sequence = 0;
        return ask(mouth, 1);
    }
  };
  for (int how = 0; how <= 7; ++how) {
    SCOPED_TRACE(how);
    may_answer_ = false;
    Mouth mouth = calling();
    break_it(mouth, how);
    EXPECT_TRUE(mouth.ear->was_told(ErrorCode::protocol_violation, ""));
    EXPECT_TRUE(eventually([&] {
      const ResponderStats stats = responder_.stats();
      return stats.running == 0 && stats.waiting == 0;
    })) << "its requests are cancelled";
  }
  may_answer_ = true;
  EXPECT_TRUE(succeeds(node_.call("plan", numbered(1), kPatience))) << "others are not disturbed";
}

TEST_P(StrangeCallers, ARequestThatCannotBeReadIsAnsweredAndEndsNothing) {
  may_answer_ = true;
  Mouth mouth = calling();
  const auto header = [](std::uint64_t id) {
    return header_of(CallWord{.id = id, .left_ns = CallWord::kNever});
  };
  Descriptor of_no_schema = request();
  of_no_schema.schema = 5;
  mouth.say(of_no_schema, payload(), header(1));
  mouth.say(request(), payload().first(3), header(2));
  mouth.say({.kind = MessageKind::schema, .schema = 5}, as_bytes("no schema"));
  mouth.say(of_no_schema, payload(), header(3));
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::bytes) == 3; }));
  ask(mouth, 4);
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::data) == 1; }));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
}

TEST_P(StrangeCallers, BeyondThePlacesAreEachTold) {
  Mouth mouth = calling();
  constexpr int kAsked = 200;
  constexpr int kRefused = kAsked - (1 + 64) / 2;  // one runs, 64 may wait: half is one caller's
  for (int id = 1; id <= kAsked; ++id) ask(mouth, id);
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::bytes) == kRefused; }));
  EXPECT_EQ(responder_.stats().refused, static_cast<std::uint64_t>(kRefused));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
}

TEST_P(StrangeCallers, WhoseRequestsAreTooManyAreTold) {
  Responder patient =
      Responder::declare(node_, "later",
                         [](const Request& request) {
                           EXPECT_TRUE(eventually([&] { return request.cancelled(); }));
                           return Result<TensorDict>(request.tensors());
                         },
                         {.handlers = 1, .waiting = kMaxWaitingRequests})
          .value();
  const CallOpening later{.entity = 3};
  Mouth mouth = open(Purpose::call, std::as_bytes(std::span(&later, 1)));
  mouth.say({.kind = MessageKind::schema, .schema = 1}, numbered(1).schema()->encoding());
  for (std::uint64_t id = 1; id <= kMaxOpenCalls; ++id) ask(mouth, id);
  EXPECT_TRUE(eventually([&] { return patient.stats().waiting == kMaxOpenCalls - 1; }));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
  ask(mouth, kMaxOpenCalls + 1);
  EXPECT_TRUE(mouth.ear->was_told(ErrorCode::protocol_violation, "128"));
}

// Responders

class StrangeResponders : public StrangeCallers {
 protected:
  StrangeResponders() { EXPECT_TRUE(succeeds(responder_.close(kPatience))); }
  /// Makes the node call, and returns the channel once the stranger has the request.
  [[nodiscard]] Mouth asked() {
    caller_ = std::jthread([this] { result_ = node_.call("plan", numbered(1), kPatience); });
    Mouth mouth = called();
    EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::data) != 0; }));
    mouth.say({.kind = MessageKind::schema, .schema = 1}, numbered(1).schema()->encoding());
    return mouth;
  }
  [[nodiscard]] Result<Reply> result() {
    caller_.join();
    return *std::move(result_);
  }
  static void answer(Mouth& mouth, CallWord word) {
    word.kind = CallWordKind::answer;
    mouth.say(request(), payload(), header_of(word));
  }

  std::optional<Result<Reply>> result_;
  std::jthread caller_;
};
TENDON_ON_BOTH_PATHS(StrangeResponders);

TEST_P(StrangeResponders, AnHonestOneIsHeard) {
  Mouth mouth = asked();
  answer(mouth, {.id = 1});
  const Reply reply = result().value();
  EXPECT_EQ(reply.node, "stranger");
  EXPECT_EQ(number_of(reply.tensors), 7);
}

TEST_P(StrangeResponders, AnAnswerThatIsLateIsDroppedAndCounted) {
  Responder other = Responder::declare(node_, "plan", [this](const Request& request) {
                      EXPECT_TRUE(eventually([&] { return may_answer_.load(); }));
                      return Result<TensorDict>(request.tensors());
                    }).value();
  Mouth mouth = asked();
  may_answer_ = true;
  EXPECT_EQ(result().value().node, "node");
  EXPECT_TRUE(eventually([&] { return mouth.ear->count(MessageKind::cancel) == 1; }));
  answer(mouth, {.id = 1});
  EXPECT_TRUE(eventually([&] { return node_.call_stats().late_answers == 1; }));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
}

TEST_P(StrangeResponders, AnAnswerThatCannotBeReadFailsOneCall) {
  Mouth mouth = asked();
  mouth.say(request(), payload().first(2),
            header_of(CallWord{.id = 1, .kind = CallWordKind::answer}));
  EXPECT_TRUE(fails_with(result(), ErrorCode::corrupt_data, "stranger"));
  EXPECT_EQ(mouth.ear->count(MessageKind::error), 0);
}

TEST_P(StrangeResponders, ThatBreakTheProtocolAreLeft) {
  const auto break_it = [&](Mouth& mouth, unsigned how) {
    const std::uint64_t id = how + 1;  // each call has the next one
    switch (how) {
      case 0:
        return answer(mouth, {.id = 5});
      case 1:
        return mouth.say(request(), payload(), header_of(CallWord{.id = id}));
      case 2:
        return mouth.say(sample(), as_bytes("what"),
                         header_of(CallWord{.id = id, .kind = CallWordKind::answer}));
      case 3:
        return mouth.say(request(), payload(),
                         header_of(CallWord{.id = id, .kind = CallWordKind::error, .code = 306}));
      case 4: {
        const std::string large(600, 'x');
        return mouth.say(sample(), as_bytes(large),
                         header_of(CallWord{.id = id, .kind = CallWordKind::error, .code = 306}));
      }
      default:
        return mouth.say(sample(), {}, {});
    }
  };
  for (unsigned how = 0; how <= 5; ++how) {
    SCOPED_TRACE(how);
    Mouth mouth = asked();
    break_it(mouth, how);
    EXPECT_TRUE(fails_with(result(), ErrorCode::protocol_violation, "stranger"));
    EXPECT_TRUE(mouth.ear->was_told(ErrorCode::protocol_violation, ""));
    discovery_->announce(DiscoveryWord::went,
                         entity_key(detail::EntityKind::responder, 1, "plan", stranger_.id()));
    discovery_->announce(DiscoveryWord::went, node_key("stranger"));
    ASSERT_TRUE(eventually([&] { return node_.nodes().size() == 1; }));
  }
}

TEST_P(StrangeResponders, SayWhatAPeerMaySay) {
  Mouth mouth = asked();
  const std::string text = "no\x1b[31m plan";
  mouth.say(sample(), as_bytes(text),
            header_of(CallWord{.id = 1, .kind = CallWordKind::error, .code = 3}));  // a timeout
  const auto failed = result();
  EXPECT_TRUE(fails_with(failed, ErrorCode::handler_failed, "plan"));
  EXPECT_EQ(failed.error().detail.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace tendon::test
