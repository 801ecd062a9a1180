// SPDX-License-Identifier: Apache-2.0
// How publish() waits with Overflow::block: for which subscribers, for how long, and what it finds
// prepared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "memory/publish_pool.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Block : public NodesTest {
 protected:
  // Publishes a sample while nothing is received until publish() has returned.
  template <class... Until>
  static Published publish_before_anything_is_taken(Publisher& publisher, std::int64_t number,
                                                    Subscriber& subscriber, Until... until) {
    std::atomic<bool> has_returned{false};
    std::thread taking([&] {
      if (eventually([&] { return has_returned.load(); })) return;
      ADD_FAILURE() << "publish() waits";
      (void)receive(subscriber);
    });
    const Published published = publisher.publish(numbered(number), until...).value();
    has_returned = true;
    taking.join();
    return published;
  }
  // Counts the samples that lag. With a window of one sample all but one do: which one does not
  // depends on when the last credit arrives.
  static std::size_t lagging_before_anything_is_taken(Publisher& publisher,
                                                      const std::vector<std::int64_t>& numbers,
                                                      Subscriber& subscriber) {
    std::size_t count = 0;
    for (const std::int64_t number : numbers)
      count += publish_before_anything_is_taken(publisher, number, subscriber).lagging.size();
    return count;
  }
};
TENDON_ON_BOTH_PATHS(Block);

TEST_P(Block, PublishWithoutADeadlineWaits) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher =
      Publisher::declare(vision.node, "count", {.qos = {.overflow = Overflow::block}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 1}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_THAT(publisher.publish(numbered(1)).value().lagging, IsEmpty());
  // The subscriber takes the first sample when the second is published and waits for its turn.
  std::thread taking([&] {
    for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
      EXPECT_TRUE(eventually([&] { return publisher.stats().published == sequence + 1; }));
      EXPECT_EQ(receive(subscriber).sequence, sequence);
    }
  });
  EXPECT_THAT(publisher.publish(numbered(2)).value().lagging, IsEmpty());
  EXPECT_THAT(publisher.publish(as_bytes("three")).value().lagging, IsEmpty());
  Loan four = publisher.loan(numbered(4).schema()).value();
  EXPECT_THAT(publisher.publish(std::move(four)).value().lagging, IsEmpty());
  EXPECT_THAT(publisher.publish(numbered(5)).value().lagging, IsEmpty());
  taking.join();
}

TEST_P(Block, ABlockForOfZeroAndADeadlineOfNowWaitForNobody) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  for (const auto block_for : {0ms, 30'000ms}) {
    Publisher publisher =
        Publisher::declare(vision.node, "count",
                           {.qos = {.overflow = Overflow::block}, .block_for = block_for})
            .value();
    Subscriber subscriber = Subscriber::declare(motor.node, "count", {.window = 1}).value();
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
    EXPECT_THAT(publisher.publish(numbered(1)).value().lagging, IsEmpty());
    const Published second =
        block_for == 0ms
            ? publish_before_anything_is_taken(publisher, 2, subscriber)
            : publish_before_anything_is_taken(publisher, 2, subscriber, Deadline::now());
    EXPECT_THAT(second.lagging, SizeIs(1));
  }
  const auto refused = Publisher::declare(vision.node, "count", {.block_for = -1ms});
  EXPECT_TRUE(fails_with(refused, ErrorCode::invalid_argument, "block_for is -1 ms"));
}

TEST_P(Block, ASubscriberThatOnlyThePublishingThreadEmptiesLagsAtOnce) {
  Program& vision = start("vision");
  const Told told(vision.node);
  Publisher publisher =
      Publisher::declare(vision.node, "count", {.qos = {.overflow = Overflow::block}}).value();
  Subscriber own = Subscriber::declare(vision.node, "count", {.window = 1}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  const auto reasons = [&] { return told.of(FabricEventKind::lagging); };
  EXPECT_THAT(publisher.publish(numbered(1)).value().lagging, IsEmpty());
  for (int n = 2; n <= 3; ++n)
    EXPECT_THAT(publish_before_anything_is_taken(publisher, n, own).lagging, SizeIs(1));
  ASSERT_TRUE(eventually([&] { return reasons().size() == 1; }));
  EXPECT_THAT(reasons().back().reason, HasSubstr("nobody has received"));
  EXPECT_THAT(reasons().back().node, HasSubstr("vision"));

  EXPECT_EQ(receive(own).sequence, 1u);
  EXPECT_EQ(receive(own).sequence, 3u);
  EXPECT_GE(lagging_before_anything_is_taken(publisher, {4, 5, 6}, own), 2u);
  ASSERT_TRUE(eventually([&] { return reasons().size() >= 2; }));
  EXPECT_THAT(reasons().back().reason, HasSubstr("the thread that publishes"));

  // Another thread receives: publish() waits for that one.
  std::atomic<std::uint64_t> last{0};
  std::thread taking([&] {
    while (last < 20) last = receive(own).sequence;
  });
  EXPECT_TRUE(eventually([&] { return last == 6; }));
  const std::size_t told_before = reasons().size();
  for (int n = 7; n <= 20; ++n)
    EXPECT_THAT(publisher.publish(numbered(n), kPatience).value().lagging, IsEmpty()) << n;
  taking.join();
  EXPECT_THAT(reasons(), SizeIs(told_before));
}

// Any thread completes a posted receive: the next receive is posted by the thread that posts them
// all.
TEST_P(Block, AThreadThatPostsReceivesIsTheReceiver) {
  Program& vision = start("vision");
  Publisher publisher =
      Publisher::declare(vision.node, "count", {.qos = {.overflow = Overflow::block}}).value();
  Subscriber own = Subscriber::declare(vision.node, "count", {.window = 1}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  EXPECT_THAT(publisher.publish(numbered(1)).value().lagging, IsEmpty());
  std::thread([&] { EXPECT_EQ(receive(own).sequence, 1u); }).join();
  EXPECT_THAT(publisher.publish(numbered(2), kPatience).value().lagging, IsEmpty());
  EXPECT_EQ(own.recv_async().wait(kPatience).value().sequence, 2u);
  EXPECT_GE(lagging_before_anything_is_taken(publisher, {3, 4, 5}, own), 2u);
}

TEST_P(Block, TheSlotsOfADeclaredSchemaHaveTheirPagesBeforeTheFirstSample) {
  Program& vision = start("vision");
  const auto schema = Schema::make({{"x", DType::u8, {100'000}}}).value();
  const auto pool = ContextCore::of(vision.context)->publishing().pool();
  const auto resident = [&] { return pool->stats().slots.resident_bytes; };
  const Publisher undeclared =
      Publisher::declare(vision.node, "any", {.qos = {keep_last(8)}}).value();
  const Publisher small =
      Publisher::declare(vision.node, "small", {.schema = numbered(1).schema()}).value();
  const Publisher publisher =
      Publisher::declare(vision.node, "frames", {.qos = {keep_last(3)}, .schema = schema}).value();
  EXPECT_TRUE(eventually([&] { return resident() == 4 * 131'072; })) << resident();
}

}  // namespace
}  // namespace tendon::test
