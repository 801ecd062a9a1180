// SPDX-License-Identifier: Apache-2.0 Readers over sockets that read nothing, or stop for a while.
// The tests check how much of the publisher's memory they keep, what the others receive, and what
// they hear when they continue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "fabric/nodes/node_core.hpp"
#include "fabric/topics/publisher_core.hpp"
#include "support/batches.hpp"
#include "support/silent_reader.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using detail::NodeCore;
using detail::PublisherCore;
using detail::StoppedSends;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint64_t kMiB = 1 << 20;

class StoppedReaders : public NodesTest {
 protected:
  static ContextCore& core_of(const Program& program) { return *ContextCore::of(program.context); }
  static detail::PublishPool& pool_of(const Program& program) {
    return *core_of(program).publishing().pool();
  }
  static std::uint64_t slots_in_use(const Program& program) {
    return pool_of(program).stats().slots.loaned_count;
  }
  std::shared_ptr<PublisherCore> declare(const Program& vision, PublisherOptions options = {}) {
    return PublisherCore::create(NodeCore::of(vision.node), KeyExpression::parse("frames").value(),
                                 options)
        .value();
  }
  /// Publishes the next sample, which `honest` receives.
  void publish(PublisherCore& publisher, std::uint64_t size_bytes, Subscriber& honest) {
    ASSERT_TRUE(succeeds(publisher.publish(patterned(++published_, size_bytes), 0s)));
    const Sample sample = receive(honest);
    ASSERT_EQ(sample.sequence, published_);
    ASSERT_THAT(sample.gaps, IsEmpty());
    ASSERT_TRUE(is_patterned(*sample.tensors, published_, size_bytes));
  }
  /// Makes this program receive nothing while the result lives.
  [[nodiscard]] static std::vector<std::unique_lock<detail::Mutex>> stop_reading(
      const Program& program) {
    std::vector<std::unique_lock<detail::Mutex>> stopped;
    for (const auto& link : *core_of(program).links().all())
      stopped.emplace_back(link->receive_mutex());
    return stopped;
  }
  /// Publishes the first sample, which each subscriber takes: missing samples are counted from
  /// there.
  void begin(PublisherCore& publisher, std::vector<Subscriber>& subscribers) {
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(subscribers.size(), kPatience)));
    ASSERT_TRUE(succeeds(publisher.publish(patterned(++published_, 100), 0s)));
    for (Subscriber& subscriber : subscribers) ASSERT_EQ(receive(subscriber).sequence, 1u);
  }
  /// Expects that every later sample up to the last one arrived, or is in a gap of that reason.
  void expect_all_accounted(Subscriber& subscriber) const {
    std::uint64_t accounted = 1;
    for (std::uint64_t last = 1; last < published_;) {
      const Sample sample = receive(subscriber);
      for (const Gap& gap : sample.gaps) EXPECT_EQ(gap.reason, GapReason::overflow) << gap;
      accounted += 1 + missing_in(sample);
      last = sample.sequence;
      EXPECT_EQ(accounted, last);
    }
  }

  std::uint64_t published_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Paths, StoppedReaders, testing::Values(kTcp), way_name);

// Each subscribed when another sample was the newest one.
TEST_P(StoppedReaders, OfOneLinkPinWhatIsWithTheKernel) {
  constexpr std::uint64_t kSize = 1'000'000;
  Program& vision = start("vision", {.publish_bytes = 64 * kMiB});
  Program& motor = start("motor");
  const auto publisher = declare(vision, {.qos = {keep_last(2)}});
  Subscriber honest = Subscriber::declare(motor.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  SilentReader silent(vision.context.id(), vision.node.address());
  for (std::size_t n = 1; n <= 80; ++n) {
    silent.subscribe(publisher->entity());
    ASSERT_TRUE(eventually([&] { return publisher->stats().subscribers == n + 1; }));
    ASSERT_NO_FATAL_FAILURE(publish(*publisher, kSize, honest));
    if (n == 1) silent.read_one();
  }
  EXPECT_LE(slots_in_use(vision), 2u + 2u) << "the history, and what the socket has begun";
  EXPECT_EQ(publisher->stats().copied_over_share, 0u);
  EXPECT_EQ(publisher->stats().history_trimmed, 0u);
  publisher->end();
}

TEST_P(StoppedReaders, OfManyLinksPinAQuarterTogether) {
  constexpr std::uint64_t kSize = 15'000'000;                        // more than a socket takes
  Program& vision = start("vision", {.publish_bytes = 256 * kMiB});  // 16 slots of 16 MiB
  Program& motor = start("motor");
  const auto publisher = declare(vision, {.qos = {keep_last(2)}});
  Subscriber honest = Subscriber::declare(motor.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  StoppedSends& sends = core_of(vision).publishing().sends();
  EXPECT_EQ(sends.most_bytes(), 64 * kMiB);
  std::vector<std::unique_ptr<SilentReader>> silent;
  std::uint64_t most_pinned = 0;
  for (std::size_t n = 1; n <= 12; ++n) {
    silent.push_back(std::make_unique<SilentReader>(vision.context.id(), vision.node.address()));
    silent.back()->subscribe(publisher->entity());
    ASSERT_TRUE(eventually([&] { return publisher->stats().subscribers == n + 1; }));
    ASSERT_NO_FATAL_FAILURE(publish(*publisher, kSize, honest));
    silent.back()->read_one();
    most_pinned = std::max(most_pinned, pool_of(vision).sending_bytes());
  }
  EXPECT_GE(most_pinned, sends.most_bytes()) << "they stand still, and more would be pinned";
  EXPECT_TRUE(eventually([&] {
    publish(*publisher, kSize, honest);
    return pool_of(vision).sending_bytes() <= sends.most_bytes();
  })) << pool_of(vision).sending_bytes();
  EXPECT_EQ(publisher->stats().history_trimmed, 0u);
  publisher->end();
}

TEST_P(StoppedReaders, ThatGoOnHearExactGaps) {
  constexpr std::uint64_t kSize = 3'000'000;
  Program& vision = start("vision", {.publish_bytes = 16 * kMiB});  // 4 slots
  Program& motor = start("motor");
  Program& memory = start("memory");
  Program& arm = start("arm");
  const auto publisher = declare(vision);
  std::vector<Subscriber> readers;
  for (Program* const program : {&arm, &motor, &motor, &memory})
    readers.push_back(Subscriber::declare(program->node, "frames").value());
  ASSERT_NO_FATAL_FAILURE(begin(*publisher, readers));
  Subscriber& honest = readers.front();
  {
    const auto in_motor = stop_reading(motor);
    for (int n = 0; n < 10; ++n) ASSERT_NO_FATAL_FAILURE(publish(*publisher, kSize, honest));
    const auto in_memory = stop_reading(memory);
    for (int n = 0; n < 10; ++n) ASSERT_NO_FATAL_FAILURE(publish(*publisher, kSize, honest));
    StoppedSends& sends = core_of(vision).publishing().sends();
    (void)sends.take_back(StoppedSends::Clock::now() + 1h);  // sends that had begun, too
    EXPECT_LE(pool_of(vision).sending_bytes(), sends.most_bytes());
    ASSERT_NO_FATAL_FAILURE(publish(*publisher, kSize, honest));
  }
  for (std::size_t n = 1; n < readers.size(); ++n) expect_all_accounted(readers[n]);
  publisher->end();
}

TEST_P(StoppedReaders, OfARateHearWhatWasLostAndWhatWasLeftOut) {
  constexpr std::uint64_t kSize = 1'000'000;
  Program& vision = start("vision");
  Program& motor = start("motor");
  Program& arm = start("arm");
  const auto publisher = declare(vision);
  std::vector<Subscriber> readers;
  readers.push_back(Subscriber::declare(arm.node, "frames").value());
  for (int n = 0; n < 2; ++n)
    readers.push_back(Subscriber::declare(motor.node, "frames", {.max_hz = 1000}).value());
  ASSERT_NO_FATAL_FAILURE(begin(*publisher, readers));
  Subscriber& honest = readers.front();
  {
    const auto in_motor = stop_reading(motor);
    for (int n = 0; n < 40; ++n) ASSERT_NO_FATAL_FAILURE(publish(*publisher, kSize, honest));
  }
  for (Subscriber* const subscriber : {&readers[1], &readers[2]}) {
    std::uint64_t accounted = 1;
    std::uint64_t last = 1;
    // The newest may be left out: each later sample reports more.
    ASSERT_TRUE(eventually([&] {
      const auto sample = subscriber->recv(20ms);
      if (!sample) {
        publish(*publisher, kSize, honest);
        return false;
      }
      accounted += 1 + missing_in(*sample);
      last = sample->sequence;
      return last >= 40;
    }));
    EXPECT_EQ(accounted + subscriber->stats().thinned, last);
  }
  publisher->end();
}

TEST_P(StoppedReaders, AreWaitedForWithBlockUntilTheDeadlineAndLetGoOfBehindIt) {
  constexpr std::uint64_t kSize = 1'000'000;
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto publisher = declare(vision, {.qos = {.overflow = Overflow::block}});
  std::vector<Subscriber> subscribers;
  for (int n = 0; n < 8; ++n)
    subscribers.push_back(Subscriber::declare(motor.node, "frames").value());
  ASSERT_NO_FATAL_FAILURE(begin(*publisher, subscribers));
  {
    const auto in_motor = stop_reading(motor);
    const auto lagging = [&](Deadline deadline) {
      return publisher->publish(patterned(++published_, kSize), deadline).value().lagging.size();
    };
    while (lagging(kBriefly) != subscribers.size()) ASSERT_LT(published_, 100u);
    // Nobody waits for them any more: queued samples are dropped.
    for (int n = 0; n < 20; ++n) EXPECT_EQ(lagging(Deadline::never()), subscribers.size());
    EXPECT_LE(slots_in_use(vision), 1u + 2u) << "the history, and what the socket has begun";
  }
  for (Subscriber& subscriber : subscribers) expect_all_accounted(subscriber);
  publisher->end();
}

TEST_P(StoppedReaders, OfABlockThatGoOnInTimeMissNothing) {
  constexpr std::uint64_t kSize = 1'000'000;
  constexpr std::uint64_t kCount = 30;
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto publisher = declare(vision, {.qos = {.overflow = Overflow::block}});
  std::vector<Subscriber> subscribers;
  for (int n = 0; n < 4; ++n)
    subscribers.push_back(Subscriber::declare(motor.node, "frames").value());
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(4, kPatience)));
  std::jthread publishing;
  {
    const auto in_motor = stop_reading(motor);
    publishing = std::jthread([&] {
      for (std::uint64_t n = 1; n <= kCount; ++n) {
        EXPECT_THAT(publisher->publish(patterned(n, kSize), kPatience).value().lagging, IsEmpty());
      }
    });
    std::uint64_t before = 0;
    // The publisher waits for those that read nothing.
    ASSERT_TRUE(eventually([&] {
      const std::uint64_t now = publisher->stats().published;
      return now > 1 && !publisher->stats().lagging.empty() && std::exchange(before, now) == now;
    }));
  }
  for (std::uint64_t sequence = 1; sequence <= kCount; ++sequence) {
    for (Subscriber& subscriber : subscribers) {
      const Sample sample = receive(subscriber);
      EXPECT_EQ(sample.sequence, sequence);
      EXPECT_THAT(sample.gaps, IsEmpty());
    }
  }
  publishing.join();
  publisher->end();
}

// The limit of their number

TEST_P(StoppedReaders, AndAllOthersOfOnePublisherHaveALimit) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Program& late = start("late");
  const Told told(late.node);
  const auto publisher = declare(vision);
  Subscriber first = Subscriber::declare(motor.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  const auto link = core_of(vision).links().all()->front();
  const auto subscribe = [&](std::uint32_t pipe) {
    const detail::Lock receiving(link->receive_mutex());
    const detail::SubscriptionRequest request{.entity = publisher->entity()};
    detail::Descriptor open;
    open.pipe = pipe;
    open.tag = 16;
    open.sequence = kMiB;
    return publisher->on_open(link, open, std::as_bytes(std::span(&request, 1)));
  };
  std::vector<std::shared_ptr<detail::MessageSink>> sinks;
  constexpr std::uint32_t kFirstPipe = 100'000;  // unused by others
  for (std::uint32_t n = 1; n < kMaxSubscriptions; ++n) {
    auto sink = subscribe(kFirstPipe + n);
    ASSERT_TRUE(succeeds(sink)) << n;
    sinks.push_back(*std::move(sink));
  }
  EXPECT_EQ(publisher->stats().subscribers, kMaxSubscriptions);
  EXPECT_TRUE(fails_with(subscribe(kFirstPipe), ErrorCode::limit_exceeded, "kMaxSubscriptions"));

  // One more subscriber, of another program, hears the reason, once.
  Subscriber beyond = Subscriber::declare(late.node, "frames").value();
  const auto events = [&] { return told.of(FabricEventKind::unreachable); };
  ASSERT_TRUE(eventually([&] { return !events().empty(); }));
  EXPECT_EQ(events().front().key, "frames");
  EXPECT_EQ(events().front().node, "vision");
  EXPECT_EQ(events().front().entity, publisher->entity());
  EXPECT_THAT(events().front().reason, HasSubstr("kMaxSubscriptions"));
  EXPECT_THAT(events().front().reason, HasSubstr("limit_exceeded"));
  EXPECT_EQ(beyond.stats().violations, 0u) << "it did nothing wrong";

  EXPECT_THAT(events(), SizeIs(1u));

  // There is room when another subscriber closes.
  beyond.close();
  first.close();
  ASSERT_TRUE(eventually([&] { return publisher->stats().subscribers < kMaxSubscriptions; }));
  EXPECT_TRUE(succeeds(subscribe(kFirstPipe)));
  publisher->end();
}

}  // namespace
}  // namespace tendon::test
