// SPDX-License-Identifier: Apache-2.0
// Nodes that find each other by addresses, and what their subscribers receive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "fabric/ports/subscription_request.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/pipe_pair.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Nodes : public NodesTest {};
TENDON_ON_BOTH_PATHS(Nodes);

TEST_P(Nodes, AreJoinedByAnAddressThatOneOfThemNames) {
  Program& a = start("a");
  Program& b = start("b");
  EXPECT_TRUE(eventually([&] { return a.node.nodes().size() == 2 && b.node.nodes().size() == 2; }));
  EXPECT_EQ(a.node.nodes(), (std::vector<std::string>{"a", "b"}));
  b.node.close();
  EXPECT_TRUE(eventually([&] { return a.node.nodes() == std::vector<std::string>{"a"}; }));
}

// Only a publisher that vanishes while its samples arrive causes an event.
TEST_P(Nodes, ThatLeaveInGoodOrderAreNotUndiscoverable) {
  Program& motor = start("motor");
  const Told told(motor.node);
  Subscriber subscriber = Subscriber::declare(motor.node, "**").value();
  Program& vision = start("vision");
  Program& stays = start("stays");
  Publisher kept = Publisher::declare(stays.node, "stays/state").value();
  {
    Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
    ASSERT_TRUE(succeeds(kept.wait_for_subscribers(1, kPatience)));
  }
  stop(vision);
  ASSERT_TRUE(eventually([&] {
    return motor.node.nodes() == (std::vector<std::string>{"motor", "stays"});
  }));
  stays.node.close();
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::undiscoverable).empty(); }));
  const auto events = told.of(FabricEventKind::undiscoverable);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].node, "stays");
  ASSERT_TRUE(succeeds(kept.publish(numbered(1))));
  EXPECT_EQ(number_of(*receive(subscriber).tensors), 1);
}

TEST_P(Nodes, KnowAllThatIsThereAfterASurvey) {
  Program& vision = start("vision");
  std::vector<Publisher> publishers;
  for (int n = 0; n < 100; ++n) {
    publishers.push_back(Publisher::declare(vision.node, "vision/" + std::to_string(n)).value());
  }
  Program& motor = start("motor");
  ASSERT_TRUE(succeeds(motor.node.survey(kPatience)));
  EXPECT_EQ(motor.node.nodes(), (std::vector<std::string>{"motor", "vision"}));
  EXPECT_EQ(motor.node.publishers().size(), publishers.size());
}

TEST_P(Nodes, WhatIsPublishedComesWithAllThatIsKnownOfIt) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "vision/*").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  TensorDict objects = numbered(7);
  objects.set("label", Value("a cup"));
  const Published published = publisher.publish(objects).value();
  EXPECT_EQ(published.sequence, 1u);
  EXPECT_EQ(published.shown, 1u);
  EXPECT_TRUE(published.lagging.empty());
  const Sample sample = receive(subscriber);
  EXPECT_EQ(sample.key, "vision/objects");
  EXPECT_EQ(sample.publisher, "vision");
  EXPECT_EQ(sample.sequence, 1u);
  EXPECT_THAT(sample.gaps, IsEmpty());
  EXPECT_EQ(sample.incarnation, ContextCore::of(vision.context)->identity().incarnation);
  EXPECT_NE(sample.stamp, 0u);
  ASSERT_TRUE(sample.tensors);
  EXPECT_TRUE(bitwise_equal(*sample.tensors, objects));
  EXPECT_EQ(subscriber.stats().received, 1u);
  EXPECT_EQ(publisher.stats().subscribers, 1u);
}

TEST_P(Nodes, RawBytesOfAnySizeCome) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "raw").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "raw").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (const std::size_t size : {0u, 1u, 8152u, 8153u, 3'000'000u}) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + size);
    ASSERT_TRUE(succeeds(publisher.publish(bytes)));
    const Sample sample = receive(subscriber);
    EXPECT_EQ(sample.tensors, std::nullopt);
    ASSERT_EQ(sample.bytes.size_bytes(), size);
    EXPECT_TRUE(std::ranges::equal(sample.bytes.bytes(), Bytes(bytes)));
  }
}

TEST_P(Nodes, ThoseThatComeLateGetTheHistory) {
  Program& vision = start("vision");
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(3)}}).value();
  for (int n = 1; n <= 10; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  Program& motor = start("motor");
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  for (int n = 8; n <= 10; ++n) {
    const Sample sample = receive(subscriber);
    EXPECT_EQ(sample.sequence, static_cast<std::uint64_t>(n));
    EXPECT_EQ(number_of(*sample.tensors), n);
    EXPECT_THAT(sample.gaps, IsEmpty()) << "what was before it came is no loss";
  }
}

TEST_P(Nodes, OneThatFallsBehindMissesExactlyWhatItsGapSays) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(2)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 4}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 20; ++n) {
    const Published published = publisher.publish(numbered(n)).value();
    EXPECT_EQ(published.lagging.size(), n > 4 ? 1u : 0u) << n;
  }
  for (const std::uint64_t sequence : {1u, 2u, 3u, 4u, 19u, 20u}) {
    const Sample sample = receive(subscriber);
    EXPECT_EQ(sample.sequence, sequence);
    EXPECT_EQ(number_of(*sample.tensors), static_cast<std::int64_t>(sequence));
    if (sequence == 19) {
      EXPECT_THAT(sample.gaps, ElementsAre(Gap{"vision", sample.incarnation, 5, 18,
                                               GapReason::overflow, sample.entity}));
    } else {
      EXPECT_THAT(sample.gaps, IsEmpty());
    }
  }
  EXPECT_EQ(subscriber.stats().missed, 14u);
}

TEST_P(Nodes, OneThatTakesNothingHoldsUpNobody) {
  Program& vision = start("vision", {.publish_bytes = 64u << 20});
  Program& motor = start("motor");
  Program& memory = start("memory");
  Publisher publisher = Publisher::declare(vision.node, "frames").value();
  Subscriber stopped = Subscriber::declare(motor.node, "frames").value();
  Subscriber reader = Subscriber::declare(memory.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  constexpr int kFrames = 100;
  for (int n = 1; n <= kFrames; ++n) {
    ASSERT_TRUE(succeeds(publisher.publish(patterned(n, 1'000'000))));
    const Sample sample = receive(reader);
    ASSERT_EQ(sample.sequence, static_cast<std::uint64_t>(n));
    ASSERT_THAT(sample.gaps, IsEmpty());
    ASSERT_TRUE(bitwise_equal(*sample.tensors, patterned(n, 1'000'000)));
  }
  EXPECT_EQ(publisher.stats().history_trimmed, 0u);
  // The stopped reader takes what it was shown, and then the newest sample.
  std::uint64_t last = 0;
  std::uint64_t accounted = 0;
  while (last < kFrames) {
    const Sample sample = receive(stopped);
    accounted += 1 + missing_in(sample);
    last = sample.sequence;
  }
  EXPECT_EQ(accounted, static_cast<std::uint64_t>(kFrames));
}

// The hoarder copies samples beyond max_held into its own memory: all subscribers share that of the
// publisher.
TEST_P(Nodes, OneThatKeepsEverySampleHoldsUpNobody) {
  constexpr std::uint64_t kSize = 200'000;
  constexpr std::uint64_t kCount = 200;  // five times what the publisher has room for
  Program& vision = start("vision", {.publish_bytes = std::uint64_t{8} << 20});
  Program& hoarder = start("hoarder");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "frames", {.qos = {keep_last(4)}}).value();
  Subscriber keeping = Subscriber::declare(hoarder.node, "frames").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  std::vector<Sample> kept;
  for (std::uint64_t sequence = 1; sequence <= kCount; ++sequence) {
    ASSERT_TRUE(succeeds(publisher.publish(patterned(sequence, kSize))));
    for (Subscriber* const reader : {&keeping, &subscriber}) {
      Sample sample = receive(*reader);
      ASSERT_EQ(sample.sequence, sequence);
      ASSERT_TRUE(sample.gaps.empty());
      if (reader == &keeping) kept.push_back(std::move(sample));
    }
  }
  EXPECT_EQ(publisher.stats().history_trimmed, 0u);
  EXPECT_EQ(keeping.stats().copied, way().is_shm() ? kCount - SubscriberOptions{}.max_held : 0u);
  EXPECT_EQ(subscriber.stats().copied, 0u);
  for (const Sample& sample : kept)
    EXPECT_TRUE(is_patterned(*sample.tensors, sample.sequence, kSize));
}

// Each keeps as many as it may and takes no more. Each alone is within its limits, but together
// they would have all slots.
TEST_P(Nodes, ThoseThatKeepLargeSamplesLeaveTheOthersAll) {
  constexpr std::uint64_t kSize = 600'000;  // more than half of a share; eight have room
  constexpr std::uint64_t kEach = 10;
  Program& vision = start("vision", {.publish_bytes = std::uint64_t{8} << 20});
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "frames", {.qos = {keep_last(2)}}).value();
  Subscriber honest = Subscriber::declare(motor.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  std::uint64_t sequence = 0;
  const auto publish = [&] {
    ASSERT_TRUE(succeeds(publisher.publish(patterned(++sequence, kSize))));
    const Sample sample = receive(honest);
    ASSERT_EQ(sample.sequence, sequence);
    ASSERT_THAT(sample.gaps, IsEmpty());
    ASSERT_TRUE(is_patterned(*sample.tensors, sequence, kSize));
  };
  std::vector<Subscriber> keepers;
  std::vector<Sample> kept;
  for (int keeper = 0; keeper < 6; ++keeper) {
    Program& hoarder = start("hoarder" + std::to_string(keeper));
    keepers.push_back(Subscriber::declare(hoarder.node, "frames").value());
    ASSERT_TRUE(succeeds(keepers.back().wait_for_publishers(1, kPatience)));
    const std::uint64_t history = std::min<std::uint64_t>(sequence, 2);
    for (std::uint64_t n = 0; n < history; ++n) kept.push_back(receive(keepers.back()));
    for (std::uint64_t n = 0; n < kEach; ++n) {
      ASSERT_NO_FATAL_FAILURE(publish());
      kept.push_back(receive(keepers.back()));
    }
  }
  for (std::uint64_t n = 0; n < 50; ++n) ASSERT_NO_FATAL_FAILURE(publish());
  if (way().is_shm()) {
    EXPECT_GT(publisher.stats().copied_over_share, 0u);
  } else {
    EXPECT_EQ(publisher.stats().copied_over_share, 0u);
  }
  for (const Sample& sample : kept)
    EXPECT_TRUE(is_patterned(*sample.tensors, sample.sequence, kSize));
}

TEST_P(Nodes, SmallSamplesBetweenLargeOnesTakeNoShareOfMemory) {
  Program& vision = start("vision", {.publish_bytes = 16u << 20});  // a share of 2 MiB
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "mixed", {.qos = {keep_last(8)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "mixed").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  std::uint64_t sequence = 0;
  const auto publish = [&](std::uint64_t size) {
    ASSERT_TRUE(succeeds(publisher.publish(patterned(++sequence, size))));
  };
  publish(100);
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  publish(1'500'000);  // more than half of the share, behind a small one
  EXPECT_EQ(receive(subscriber).sequence, 2u);
  for (int round = 0; round < 5; ++round) {
    publish(1'500'000);
    publish(100);
    publish(1'500'000);
    for (int n = 3; n >= 1; --n) {
      const Sample sample = receive(subscriber);
      EXPECT_EQ(sample.sequence, sequence + 1 - static_cast<std::uint64_t>(n));
      EXPECT_THAT(sample.gaps, IsEmpty());
    }
  }
}

TEST_P(Nodes, ASampleLargerThanALinkTakesIsAGapThere) {
  Program& vision = start("vision");
  Program& motor = start("motor", {.link_cap_bytes = 1u << 20});
  Program& memory = start("memory");
  Publisher publisher = Publisher::declare(vision.node, "frames").value();
  Subscriber narrow = Subscriber::declare(motor.node, "frames").value();
  Subscriber wide = Subscriber::declare(memory.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  for (const std::uint64_t size : {100u, 2'000'000u, 100u}) {
    ASSERT_TRUE(succeeds(publisher.publish(patterned(1, size))));
    EXPECT_TRUE(is_patterned(*receive(wide).tensors, 1, size));
  }
  EXPECT_EQ(receive(narrow).sequence, 1u);
  const Sample next = receive(narrow);
  if (next.sequence == 3) {  // its link decides, which differs between the paths
    EXPECT_EQ(missing_in(next), 1u);
  } else {
    EXPECT_EQ(next.sequence, 2u);
    EXPECT_EQ(receive(narrow).sequence, 3u);
  }
  EXPECT_TRUE(succeeds(publisher.close(kPatience)));
}

TEST_P(Nodes, OfOneContextMayLeaveAndJoinAgain) {
  Program& vision = start("vision");
  Context context = Context::create({.transport = way().transport, .lease = kLongLease}).value();
  for (int round = 1; round <= 5; ++round) {
    Node node = Node::join(context,
                           {.domain = "brain",
                            .name = "motor",
                            .peers = std::vector<std::string>{vision.node.address()}},
                           kPatience)
                    .value();
    Publisher there = Publisher::declare(vision.node, "there").value();
    Publisher here = Publisher::declare(node, "here").value();
    Subscriber to_there = Subscriber::declare(node, "there").value();
    Subscriber to_here = Subscriber::declare(vision.node, "here").value();
    ASSERT_TRUE(succeeds(there.wait_for_subscribers(1, kPatience)));
    ASSERT_TRUE(succeeds(here.wait_for_subscribers(1, kPatience)));
    ASSERT_TRUE(succeeds(there.publish(numbered(round))));
    ASSERT_TRUE(succeeds(here.publish(numbered(-round))));
    EXPECT_EQ(number_of(*receive(to_there).tensors), round);
    EXPECT_EQ(number_of(*receive(to_here).tensors), -round);
  }
}

TEST_P(Nodes, TellOfGapsOnceTheyAreKnown) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "*", {.window = 2}).value();
  Publisher back = Publisher::declare(motor.node, "way/back").value();
  Subscriber to_there = Subscriber::declare(vision.node, "way/back").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(back.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 5; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  EXPECT_EQ(receive(subscriber).sequence, 2u);
  const Sample fifth = receive(subscriber);
  ASSERT_EQ(fifth.sequence, 5u);
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::gap).size() == 1; }));
  const FabricEvent event = told.of(FabricEventKind::gap).front();
  EXPECT_EQ(event.key, "count");
  EXPECT_EQ(event.node, "vision");
  EXPECT_EQ(event.gap, (Gap{"vision", fifth.incarnation, 3, 4, GapReason::overflow, fifth.entity}));
  // Checks the last gap, which no sample follows. The returning sample is behind the credits: two
  // more are shown.
  ASSERT_TRUE(succeeds(back.publish(numbered(1))));
  (void)receive(to_there);
  for (int n = 6; n <= 9; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  EXPECT_FALSE(publisher.close(0s)) << "some were not shown";
  EXPECT_TRUE(eventually([&] { return told.of(FabricEventKind::gap).back().gap->last == 9; },
                         [&] { (void)subscriber.recv(0s); }));
  EXPECT_EQ(subscriber.stats().missed + subscriber.stats().received, 9u);
}

TEST_P(Nodes, TellWhoLagsOnceUntilItTakesSomething) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(vision.node);
  Publisher publisher =
      Publisher::declare(vision.node, "count", {.qos = {.overflow = Overflow::block}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 1}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 4; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n), kBriefly)));
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::lagging).empty(); }));
  const auto lagging = told.of(FabricEventKind::lagging);
  EXPECT_EQ(lagging.size(), 1u);
  EXPECT_THAT(lagging.front().node, HasSubstr("motor"));
  EXPECT_THAT(lagging.front().reason, HasSubstr("sample 2"));
}

TEST_P(Nodes, TellOfWhatCannotBeConnected) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  const auto other = Schema::make({{"y", DType::f32, {3}}}).value();
  const Publisher publisher =
      Publisher::declare(vision.node, "typed", {.schema = numbered(1).schema()}).value();
  const Subscriber subscriber = Subscriber::declare(motor.node, "typed", {.schema = other}).value();
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::schema_mismatch).size() == 1; }));
  EXPECT_EQ(told.of(FabricEventKind::schema_mismatch).front().key, "typed");
  // Twins cause one event, and another one when they return.
  for (std::size_t round = 1; round <= 2; ++round) {
    Program& twin = start("vision");
    ASSERT_TRUE(
        eventually([&] { return told.of(FabricEventKind::duplicate_name).size() == round; }));
    stop(twin);
    ASSERT_TRUE(eventually([&] { return motor.node.nodes().size() == 2; }));
  }
  EXPECT_EQ(told.of(FabricEventKind::duplicate_name).front().node, "vision");
}

TEST_P(Nodes, TakeNoSampleThatIsTooOld) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "commands").value();
  Subscriber patient = Subscriber::declare(motor.node, "commands", {.max_age = 1h}).value();
  // Even the transfer to this node takes longer than 1 ns.
  Subscriber hasty = Subscriber::declare(motor.node, "commands", {.max_age = 1ns}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  for (int n = 1; n <= 3; ++n) {
    ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
    const Sample sample = receive(patient);
    EXPECT_THAT(sample.gaps, IsEmpty());
    ASSERT_TRUE(sample.age);
    EXPECT_GT(*sample.age, 0ns);
    EXPECT_LT(*sample.age, 1h);
  }
  ASSERT_TRUE(eventually([&] { return hasty.stats().expired == 3; },
                         [&] { EXPECT_FALSE(hasty.recv(0s)); }));
  EXPECT_THAT(hasty.recv(0s).error().detail, HasSubstr("3 samples so far were older than max_age"));
  EXPECT_EQ(hasty.stats().missed, 3u);
  EXPECT_EQ(hasty.stats().received, 0u);
  EXPECT_EQ(Subscriber::declare(motor.node, "commands", {.max_age = 0ns}).error().code,
            ErrorCode::invalid_argument);
}

TEST_P(Nodes, BlockWaitsForThoseThatAreBehindAndSaysWhoIs) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher =
      Publisher::declare(vision.node, "count", {.qos = {.overflow = Overflow::block}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 2}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_TRUE(publisher.publish(numbered(1), kPatience).value().lagging.empty());
  EXPECT_TRUE(publisher.publish(numbered(2), kPatience).value().lagging.empty());
  const Published third = publisher.publish(numbered(3), kBriefly).value();
  ASSERT_EQ(third.lagging.size(), 1u);
  EXPECT_NE(third.lagging.front().find("motor"), std::string::npos);
  EXPECT_EQ(third.shown, 0u);
  // The subscriber has let a deadline pass: publishing does not wait for it again.
  EXPECT_EQ(publisher.publish(numbered(4), Deadline::never()).value().lagging.size(), 1u);
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  EXPECT_EQ(receive(subscriber).sequence, 2u);
  const Sample next = receive(subscriber);
  EXPECT_EQ(next.sequence, 4u);
  EXPECT_EQ(missing_in(next), 1u);
  // It has taken a sample: publishing waits for it again, until it takes.
  std::thread taking([&] {
    for (std::uint64_t sequence = 5; sequence <= 20; ++sequence)
      EXPECT_EQ(receive(subscriber).sequence, sequence);
  });
  for (int n = 5; n <= 20; ++n)
    EXPECT_TRUE(publisher.publish(numbered(n), kPatience).value().lagging.empty()) << n;
  taking.join();
}

TEST_P(Nodes, ALostLinkIsMadeAgainAndNothingThatIsKeptIsMissed) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  cut_links(motor);
  for (int n = 2; n <= 5; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  for (std::uint64_t sequence = 2; sequence <= 5; ++sequence) {
    const Sample sample = receive(subscriber);
    EXPECT_EQ(sample.sequence, sequence);
    EXPECT_THAT(sample.gaps, IsEmpty());
  }
  EXPECT_EQ(subscriber.stats().missed, 0u);
}

TEST_P(Nodes, WhatLeftTheHistoryWithoutALinkIsOneGap) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  cut_links(motor);
  cut_links(vision);
  for (int n = 2; n <= 9; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  Sample sample = receive(subscriber);
  // Both sides may have made a link again while samples were published.
  std::uint64_t accounted = sample.sequence - 1;
  EXPECT_EQ(missing_in(sample) + 1, accounted);
  for (const Gap& gap : sample.gaps) EXPECT_EQ(gap.reason, GapReason::reconnect);
  while (sample.sequence != 9) {
    sample = receive(subscriber);
    accounted += 1 + (missing_in(sample));
  }
  EXPECT_EQ(accounted, 8u);
}

TEST_P(Nodes, APublisherThatStartsAgainIsAnotherIncarnation) {
  Program& motor = start("motor");
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  std::set<std::uint64_t> incarnations;
  for (int round = 0; round < 3; ++round) {
    Program& vision = start("vision");
    Publisher publisher = Publisher::declare(vision.node, "count").value();
    ASSERT_TRUE(succeeds(publisher.publish(numbered(round))));
    const Sample sample = receive(subscriber);
    EXPECT_EQ(number_of(*sample.tensors), round);
    EXPECT_EQ(sample.sequence, 1u);
    EXPECT_THAT(sample.gaps, IsEmpty());
    incarnations.insert(sample.incarnation);
    ASSERT_TRUE(succeeds(publisher.close(kPatience)));
    ASSERT_TRUE(eventually([&] { return subscriber.stats().publishers == 0; },
                           [&] { (void)subscriber.recv(0s); }));
    stop(vision);
  }
  EXPECT_EQ(incarnations.size(), 3u);
}

TEST_P(Nodes, TheEndOfAPublisherSaysWhatIsMissing) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 2}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 9; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  EXPECT_TRUE(fails_with(publisher.close(kBriefly), ErrorCode::timeout, "motor"));
  EXPECT_TRUE(fails_with(publisher.publish(numbered(10)), ErrorCode::pipe_closed, "count"));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  EXPECT_EQ(receive(subscriber).sequence, 2u);
  EXPECT_TRUE(fails_with(subscriber.recv(kBriefly), ErrorCode::timeout, "0 publishers"));
  EXPECT_EQ(subscriber.stats().missed, 7u);
}

TEST_P(Nodes, CloseWaitsForThoseThatAreBehind) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(9)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 2}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 9; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  std::thread taking([&] {
    for (std::uint64_t sequence = 1; sequence <= 9; ++sequence)
      EXPECT_EQ(receive(subscriber).sequence, sequence);
  });
  EXPECT_TRUE(succeeds(publisher.close(kPatience)));
  taking.join();
  EXPECT_EQ(subscriber.stats().missed, 0u);
}

TEST_P(Nodes, ASetOfKeysHasManyPublishers) {
  Program& vision = start("vision");
  Program& pfc = start("pfc");
  Program& motor = start("motor");
  Subscriber all = Subscriber::declare(motor.node, "**").value();
  Subscriber eyes = Subscriber::declare(motor.node, "eye/*").value();
  Publisher left = Publisher::declare(vision.node, "eye/left").value();
  Publisher right = Publisher::declare(vision.node, "eye/right").value();
  Publisher goal = Publisher::declare(pfc.node, "goal").value();
  ASSERT_TRUE(succeeds(all.wait_for_publishers(3, kPatience)));
  ASSERT_TRUE(succeeds(eyes.wait_for_publishers(2, kPatience)));
  for (Publisher* publisher : {&left, &right}) {
    ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(2, kPatience)));
    ASSERT_TRUE(succeeds(publisher->publish(numbered(1))));
  }
  ASSERT_TRUE(succeeds(goal.publish(numbered(2))));
  std::set<std::string> keys;
  for (int n = 0; n < 3; ++n) keys.insert(receive(all).key);
  EXPECT_EQ(keys, (std::set<std::string>{"eye/left", "eye/right", "goal"}));
  keys.clear();
  for (int n = 0; n < 2; ++n) keys.insert(receive(eyes).key);
  EXPECT_EQ(keys, (std::set<std::string>{"eye/left", "eye/right"}));
  EXPECT_TRUE(fails_with(eyes.recv(0s), ErrorCode::timeout));
}

TEST_P(Nodes, OfOneContextFindEachOther) {
  Program& a = start("a");
  Node b = Node::join(a.context,
                      {.domain = "brain", .name = "b", .peers = std::vector<std::string>{}}, 1s)
               .value();
  Publisher publisher = Publisher::declare(a.node, "count").value();
  Subscriber subscriber = Subscriber::declare(b, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(4))));
  EXPECT_EQ(number_of(*receive(subscriber).tensors), 4);
}

TEST_P(Nodes, OfAnotherDomainAreNotThere) {
  Program& a = start("a");
  Node other = Node::join(a.context,
                          {.domain = "body", .name = "b", .peers = std::vector<std::string>{}}, 1s)
                   .value();
  Publisher publisher = Publisher::declare(a.node, "count").value();
  Subscriber stranger = Subscriber::declare(other, "count").value();
  Subscriber subscriber = Subscriber::declare(a.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_EQ(other.nodes(), (std::vector<std::string>{"b"}));
  EXPECT_EQ(stranger.stats().publishers, 0u);
}

TEST_P(Nodes, AnotherSchemaIsNotConnectedTo) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto numbers = numbered(1).schema();
  const auto patterns = patterned(1, 3).schema();
  Publisher typed = Publisher::declare(vision.node, "typed", {.schema = numbers}).value();
  Publisher any = Publisher::declare(vision.node, "any").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "*", {.schema = patterns}).value();
  Subscriber fitting = Subscriber::declare(motor.node, "typed", {.schema = numbers}).value();
  ASSERT_TRUE(succeeds(any.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(typed.wait_for_subscribers(1, kPatience)));
  EXPECT_EQ(subscriber.stats().schema_mismatches, 1u);
  EXPECT_TRUE(fails_with(typed.publish(patterned(1, 3)), ErrorCode::schema_mismatch, "typed"));
  EXPECT_TRUE(fails_with(typed.publish(Bytes()), ErrorCode::schema_mismatch));
  ASSERT_TRUE(succeeds(any.publish(numbered(1))));
  ASSERT_TRUE(succeeds(any.publish(patterned(2, 3))));
  EXPECT_EQ(receive(subscriber).sequence, 2u) << "what does not fit is passed over";
  EXPECT_EQ(subscriber.stats().schema_mismatches, 2u);
}

TEST_P(Nodes, SamplesOutliveAllThatMadeThem) {
  std::vector<Sample> kept;
  {
    Program& vision = start("vision");
    Program& motor = start("motor");
    Publisher publisher =
        Publisher::declare(vision.node, "frames", {.qos = {keep_last(8)}}).value();
    Subscriber subscriber = Subscriber::declare(motor.node, "frames", {.max_held = 2}).value();
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
    for (int n = 0; n < 5; ++n) {
      ASSERT_TRUE(succeeds(publisher.publish(patterned(n, 100'000))));
      kept.push_back(receive(subscriber));
    }
    EXPECT_EQ(subscriber.stats().copied, way().is_shm() ? 3u : 0u);
    if (way().is_shm()) {
      EXPECT_EQ(kept[0].tensors->leaf(0).access(), Access::read_only)
          << "others read the same bytes";
    }
    programs_.clear();
  }
  for (int n = 0; n < 5; ++n)
    EXPECT_TRUE(bitwise_equal(*kept[static_cast<std::size_t>(n)].tensors, patterned(n, 100'000)));
}

TEST_P(Nodes, ALoanIsPublishedWhereItWasFilled) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "frames").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "frames").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (const std::uint64_t size : {100u, 1'000'000u}) {
    Loan loan = publisher.loan(bytes_schema(size)).value();
    fill_pattern(loan["x"].mutable_bytes(), size);
    const Tensor kept = loan["x"];
    ASSERT_TRUE(succeeds(publisher.publish(std::move(loan))));
    EXPECT_TRUE(loan.empty());  // NOLINT(bugprone-use-after-move): said by its header
    EXPECT_TRUE(fails_with(publisher.publish(std::move(loan)), ErrorCode::invalid_argument));
    EXPECT_TRUE(is_patterned(*receive(subscriber).tensors, size, size));
    Loan labelled = publisher.loan(bytes_schema(size)).value();
    fill_pattern(labelled["x"].mutable_bytes(), size + 1);
    labelled.set("label", Value("a cup"));
    ASSERT_TRUE(succeeds(publisher.publish(std::move(labelled))));
    const Sample sample = receive(subscriber);
    EXPECT_TRUE(is_patterned(*sample.tensors, size + 1, size));
    EXPECT_EQ(sample.tensors->value("label"), Value("a cup"));
  }
  // Dropped without being published, a loan returns its memory.
  (void)publisher.loan(bytes_schema(1'000'000)).value();
  const auto& pool = ContextCore::of(vision.context)->publishing().pool();
  EXPECT_LE(pool->stats().slots.loaned_count, 3u);
}

TEST_P(Nodes, ALoanOfAnotherPlaceIsRefused) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "frames").value();
  Publisher other = Publisher::declare(motor.node, "frames").value();
  PipePair pair = connect();
  Loan of_pipe = pair.client.loan(bytes_schema(100'000), kPatience).value();
  EXPECT_TRUE(fails_with(publisher.publish(std::move(of_pipe)), ErrorCode::wrong_link, "pipe"));
  Loan of_publisher = publisher.loan(bytes_schema(100'000)).value();
  EXPECT_TRUE(fails_with(pair.client.send(std::move(of_publisher), kPatience),
                         ErrorCode::wrong_link, "publisher"));
  EXPECT_TRUE(fails_with(other.publish(std::move(of_publisher)), ErrorCode::wrong_link, "context"));
  EXPECT_TRUE(succeeds(publisher.publish(std::move(of_publisher))));
  EXPECT_TRUE(fails_with(publisher.loan(nullptr), ErrorCode::invalid_argument, "null"));
}

TEST_P(Nodes, WantOfMemoryTrimsTheHistoryAndIsSaid) {
  Program& vision = start("vision", {.publish_bytes = 8u << 20});
  Program& motor = start("motor");
  Publisher publisher =
      Publisher::declare(vision.node, "frames", {.qos = {keep_last(100)}}).value();
  for (int n = 1; n <= 20; ++n) ASSERT_TRUE(succeeds(publisher.publish(patterned(n, 1'000'000))));
  const std::uint64_t trimmed = publisher.stats().history_trimmed;
  EXPECT_GE(trimmed, 12u);
  Subscriber subscriber = Subscriber::declare(motor.node, "frames").value();
  EXPECT_EQ(receive(subscriber).sequence, trimmed + 1);
  const auto schema = patterned(1, 3'000'000).schema();
  EXPECT_TRUE(fails_with(Publisher::declare(vision.node, "large", {.schema = schema}),
                         ErrorCode::limit_exceeded, "publish_bytes"));
}

TEST_P(Nodes, EverySampleIsAccountedForUnderLoad) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Program& memory = start("memory");
  constexpr int kSamples = 400;
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(3)}}).value();
  const auto account = [&](Program& program, std::uint32_t window) {
    Subscriber subscriber = Subscriber::declare(program.node, "count", {.window = window}).value();
    std::uint64_t next = 0;
    for (;;) {
      const auto sample = subscriber.recv(kPatience);
      ASSERT_TRUE(succeeds(sample));
      const std::uint64_t missed = missing_in(*sample);
      if (next != 0) {
        ASSERT_EQ(sample->sequence, next + missed);
      }
      if (missed != 0) {
        ASSERT_EQ(sample->gaps.size(), 1u);
        ASSERT_EQ(sample->gaps.front().first, next);
        ASSERT_EQ(sample->gaps.front().reason, GapReason::overflow);
      }
      ASSERT_EQ(number_of(*sample->tensors), static_cast<std::int64_t>(sample->sequence));
      next = sample->sequence + 1;
      if (sample->sequence == kSamples) return;
    }
  };
  std::thread first([&] { account(motor, 2); });
  std::thread second([&] { account(memory, 16); });
  EXPECT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  for (int n = 1; n <= kSamples; ++n) EXPECT_TRUE(succeeds(publisher.publish(numbered(n))));
  first.join();
  second.join();
}

TEST_P(Nodes, InAForkedChildNothingWorksAndNothingHangs) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  std::optional<Publisher> publisher = Publisher::declare(vision.node, "count").value();
  std::optional<Subscriber> subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher->publish(numbered(1))));
  const int status = run_in_child([&] {
    if (!fails_with(publisher->publish(numbered(2)), ErrorCode::forked)) return 1;
    if (!fails_with(subscriber->recv(kPatience), ErrorCode::forked)) return 2;
    if (!fails_with(publisher->wait_for_subscribers(2, kPatience), ErrorCode::forked)) return 3;
    if (!fails_with(Subscriber::declare(motor.node, "other"), ErrorCode::forked)) return 4;
    if (!vision.node.nodes().empty()) return 5;
    publisher.reset();
    subscriber.reset();
    programs_.clear();
    return 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_EQ(receive(*subscriber).sequence, 1u) << "the parent is not disturbed";
}

TEST_P(Nodes, WithAClosedContextEndAtOnce) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(vision.context.close(kPatience)));
  EXPECT_TRUE(fails_with(publisher.publish(numbered(1)), ErrorCode::context_closed));
  EXPECT_TRUE(fails_with(publisher.loan(numbered(1).schema()), ErrorCode::context_closed));
  EXPECT_TRUE(eventually([&] { return subscriber.stats().publishers == 0; },
                         [&] { (void)subscriber.recv(0s); }));
  ASSERT_TRUE(succeeds(motor.context.close(kPatience)));
  EXPECT_TRUE(fails_with(subscriber.recv(kPatience), ErrorCode::context_closed));
}

// Misuse by a caller

TEST(NodeErrors, AreSaidWithTheirRemedy) {
  Context context = Context::create({}).value();
  EXPECT_TRUE(fails_with(Node::join(context, {.name = "a", .routers = {"tcp:"}}, 1s),
                         ErrorCode::invalid_argument, "HOST:PORT"));
  const std::vector<std::string> nobody;
  EXPECT_TRUE(fails_with(Node::join(context, {.name = "", .peers = nobody}, 1s),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(
      Node::join(context, {.name = "a", .peers = std::vector<std::string>{"nowhere"}}, 1s),
      ErrorCode::invalid_argument, "nowhere"));
  EXPECT_TRUE(
      fails_with(Node::join(context, {.name = "a", .peers = nobody, .listen = "0.0.0.0:0"}, 1s),
                 ErrorCode::permission_denied));
  // A node needs its unix socket: it fails if that cannot be made. Uses another Context, because an
  // earlier join may still have the socket.
  Context other = Context::create({}).value();
  const char* const former = std::getenv("TENDON_RUNTIME_DIR");
  const std::optional<std::string> kept =
      former ? std::optional<std::string>(former) : std::nullopt;
  setenv("TENDON_RUNTIME_DIR", "relative", 1);
  EXPECT_TRUE(fails_with(Node::join(other, {.name = "a", .peers = nobody}, 1s),
                         ErrorCode::invalid_argument, "TENDON_RUNTIME_DIR"));
  unsetenv("TENDON_RUNTIME_DIR");
  if (kept) setenv("TENDON_RUNTIME_DIR", kept->c_str(), 1);
  Node node = Node::join(context, {.name = "a", .peers = nobody}, 1s).value();
  EXPECT_TRUE(fails_with(
      Node::join(context, {.name = "b", .peers = nobody, .security = {Profile::plaintext}}, 1s),
      ErrorCode::invalid_argument, "profile"));
  EXPECT_TRUE(
      fails_with(Publisher::declare(node, "a/*"), ErrorCode::invalid_argument, "wildcards"));
  EXPECT_TRUE(fails_with(Publisher::declare(node, ""), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(Publisher::declare(node, "a", {.qos = {keep_last(0)}}),
                         ErrorCode::invalid_argument, "history"));
  EXPECT_TRUE(fails_with(Subscriber::declare(node, "a", {.window = 0}), ErrorCode::invalid_argument,
                         "window"));
  Subscriber subscriber = Subscriber::declare(node, "a").value();
  EXPECT_TRUE(fails_with(subscriber.recv(0s), ErrorCode::timeout, "0 publishers"));
  subscriber.close();
  EXPECT_TRUE(fails_with(subscriber.recv(0s), ErrorCode::pipe_closed));
  node.close();
  EXPECT_TRUE(fails_with(Subscriber::declare(node, "a"), ErrorCode::pipe_closed));
  EXPECT_TRUE(fails_with(Publisher::declare(node, "a"), ErrorCode::pipe_closed));
}

}  // namespace
}  // namespace tendon::test
