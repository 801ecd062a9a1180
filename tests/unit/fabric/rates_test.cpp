// SPDX-License-Identifier: Apache-2.0
// Subscribers that ask for fewer samples: both sides count the samples that are left out, which are
// no loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/nodes/node_core.hpp"
#include "fabric/topics/publisher_core.hpp"
#include "support/batches.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::NodeCore;
using detail::PublisherCore;
using testing::ElementsAre;
using testing::IsEmpty;

/// The clock that stamps the samples of these tests [ns].
std::atomic<std::int64_t> fake_now{0};

class Rates : public NodesTest {
 protected:
  /// Declares a publisher whose samples are as far apart as the test says. It ends as a Publisher
  /// does.
  [[nodiscard]] static std::shared_ptr<PublisherCore> declare(Program& program,
                                                              const PublisherOptions& options) {
    fake_now = 1'000'000'000;
    auto core =
        PublisherCore::create(NodeCore::of(program.node), KeyExpression::parse("count").value(),
                              options, []() noexcept { return fake_now.load(); })
            .value();
    return {core.get(), [core](PublisherCore* publisher) { publisher->end(); }};
  }
  static Published publish(PublisherCore& publisher) {
    fake_now += 1'000'000;  // 1 kHz
    return publisher.publish(numbered(++count_), 0s).value();
  }
  static inline std::int64_t count_ = 0;
  void SetUp() override { count_ = 0; }
};
TENDON_ON_BOTH_PATHS(Rates);

TEST_P(Rates, ASubscriberGetsAsManyAsItAskedForAndMissesNone) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  const auto publisher = declare(vision, {});
  Subscriber all = Subscriber::declare(motor.node, "count", {.window = 64}).value();
  Subscriber some = Subscriber::declare(motor.node, "count", {.window = 64, .max_hz = 250}).value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(2, kPatience)));
  std::vector<std::uint64_t> seen;
  for (std::uint64_t n = 1; n <= 40; ++n) {
    const Published published = publish(*publisher);
    EXPECT_THAT(published.lagging, IsEmpty());
    EXPECT_EQ(receive(all).sequence, n);
    if (published.shown == 1) continue;  // this sample is left out
    ASSERT_EQ(published.shown, 2u);
    const Sample sample = receive(some);
    EXPECT_EQ(sample.sequence, n);
    EXPECT_THAT(sample.gaps, IsEmpty());
    seen.push_back(n);
  }
  EXPECT_THAT(seen, ElementsAre(1, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39));
  EXPECT_EQ(publisher->stats().thinned, 29u);
  EXPECT_EQ(some.stats().thinned, 28u) << "it hears of those before the next one, or the end";
  ASSERT_TRUE(succeeds(publisher->close(kPatience)));
  // The last of them is counted with the end.
  EXPECT_TRUE(
      eventually([&] { return some.stats().ended == 1; }, [&] { EXPECT_FALSE(some.recv(0s)); }));
  EXPECT_EQ(some.stats().publishers, 0u);
  EXPECT_EQ(some.stats().thinned, 29u);
  EXPECT_EQ(some.stats().missed, 0u);
  EXPECT_EQ(all.stats().thinned, 0u);
  EXPECT_THAT(told.of(FabricEventKind::gap), IsEmpty());
}

TEST_P(Rates, WhatIsLostBesideIsInGapsAlone) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto publisher = declare(vision, {.qos = {keep_last(2)}});
  Subscriber some = Subscriber::declare(motor.node, "count", {.window = 2, .max_hz = 250}).value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 12; ++n) publish(*publisher);
  // 1 and 3 fill its window, 4 to 6 are left out, 7 is due and waits until it leaves the history.
  EXPECT_EQ(receive(some).sequence, 1u);
  EXPECT_EQ(receive(some).sequence, 3u);
  const Sample next = receive(some);
  EXPECT_EQ(next.sequence, 11u);
  EXPECT_THAT(next.gaps, ElementsAre(Gap{"vision", next.incarnation, 7, 10, GapReason::overflow,
                                         next.entity}));
  EXPECT_EQ(some.stats().thinned, 4u);
  EXPECT_EQ(some.stats().missed, 4u);
}

TEST_P(Rates, TheEndTellsWhatWasLeftOutFromWhatWasLost) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto publisher = declare(vision, {});
  Subscriber some = Subscriber::declare(motor.node, "count", {.window = 2, .max_hz = 250}).value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 12; ++n) publish(*publisher);
  EXPECT_TRUE(fails_with(publisher->close(0s), ErrorCode::timeout, "motor"));
  EXPECT_EQ(receive(some).sequence, 1u);
  EXPECT_EQ(receive(some).sequence, 3u);
  EXPECT_TRUE(eventually([&] { return some.stats().publishers == 0; },
                         [&] { EXPECT_FALSE(some.recv(0s)); }));
  EXPECT_EQ(some.stats().thinned, 4u) << "2, and 4 to 6";
  EXPECT_EQ(some.stats().missed, 6u) << "7 to 12";
}

TEST_P(Rates, OneThatResumesGoesOnAtItsRate) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto publisher = declare(vision, {.qos = {keep_last(4)}});
  Subscriber some = Subscriber::declare(motor.node, "count", {.max_hz = 1}).value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  publish(*publisher);
  EXPECT_EQ(receive(some).sequence, 1u);
  cut_links(motor);
  cut_links(vision);
  for (int n = 2; n <= 20; ++n) publish(*publisher);
  ASSERT_TRUE(eventually([&] { return publisher->stats().thinned >= 19; },
                         [&] { EXPECT_FALSE(some.recv(0s)); }))
      << publisher->stats().thinned;
  fake_now += 1'000'000'000;
  publish(*publisher);
  const Sample sample = receive(some);
  EXPECT_EQ(sample.sequence, 21u);
  EXPECT_THAT(sample.gaps, IsEmpty());
  EXPECT_EQ(some.stats().thinned, 19u);
}

TEST_P(Rates, BlockWaitsForNoneThatLeavesASampleOut) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const auto publisher = declare(vision, {.qos = {.overflow = Overflow::block}});
  const Subscriber some =
      Subscriber::declare(motor.node, "count", {.window = 1, .max_hz = 1}).value();
  ASSERT_TRUE(succeeds(publisher->wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 5; ++n) {
    fake_now += 1'000'000;
    const Published published = publisher->publish(numbered(n), Deadline::never()).value();
    EXPECT_EQ(published.shown, n == 1 ? 1u : 0u);
    EXPECT_THAT(published.lagging, IsEmpty());
  }
  EXPECT_TRUE(succeeds(publisher->close(Deadline::never())));
}

TEST_P(Rates, ARateOutsideOfItsLimitsIsRefused) {
  Program& motor = start("motor");
  for (const double hz : {0.0, -1.0, 0.0009, 1.1e6, std::nan("")}) {
    EXPECT_TRUE(fails_with(Subscriber::declare(motor.node, "count", {.max_hz = hz}),
                           ErrorCode::invalid_argument, "max_hz"))
        << hz;
  }
  for (const double hz : {kLeastMaxHz, kMostMaxHz})
    EXPECT_TRUE(succeeds(Subscriber::declare(motor.node, "count", {.max_hz = hz})));
}

}  // namespace
}  // namespace tendon::test
