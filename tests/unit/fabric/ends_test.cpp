// SPDX-License-Identifier: Apache-2.0
// The ends of streams: reported once, behind the last sample, with the number of missing samples.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/nodes/node_core.hpp"
#include "fabric/ports/head_pages.hpp"
#include "fabric/ports/head_teller.hpp"
#include "fabric/samples/gap_finder.hpp"
#include "fabric/topics/break_pace.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::BreakPace;
using detail::ContextCore;
using detail::Death;
using detail::GapFinder;
using testing::ElementsAre;
using testing::IsEmpty;

class Ends : public NodesTest {
 protected:
  /// Ends all links of both sides, as if the process of the other side had been killed, or without
  /// a proof of that.
  static void part(const Program& program, Death death) {
    const auto links = ContextCore::of(program.context)->links().all();
    for (const auto& link : *links)
      link->fail(Error{ErrorCode::peer_lost, "test", "its process is gone"}, death);
  }
  /// Takes samples until an end is among them, which is the last.
  [[nodiscard]] static std::vector<Sample> take_until_end(Subscriber& subscriber) {
    std::vector<Sample> taken;
    do taken.push_back(receive(subscriber));
    while (!taken.back().ended);
    return taken;
  }
  [[nodiscard]] bool is_shm() const { return way().transport != Transport::tcp; }
};
TENDON_ON_BOTH_PATHS(Ends);

TEST_P(Ends, OfAPublisherThatClosesIsExactAndBehindItsLastSample) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(8)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "*", {.ends = true}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::came).size() == 1; }));
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  ASSERT_TRUE(succeeds(publisher.close(kPatience)));
  // The event does not wait for a reader.
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::ended).size() == 1; }));
  const std::vector<Sample> taken = take_until_end(subscriber);
  ASSERT_EQ(taken.size(), 4u);
  const Ended& ended = *taken.back().ended;
  EXPECT_EQ(ended, (Ended{.publisher = "vision",
                          .entity = taken[0].entity,
                          .key = "count",
                          .incarnation = taken[0].incarnation,
                          .last_seen = 3,
                          .last_published = 3,
                          .exact = true,
                          .reason = EndReason::closed}));
  EXPECT_EQ(told.of(FabricEventKind::ended).front().ended, ended);
  EXPECT_EQ(told.of(FabricEventKind::ended).front().subscriber, subscriber.entity());
  EXPECT_THAT(taken.back().gaps, IsEmpty());
  EXPECT_FALSE(taken.back().tensors);
  EXPECT_EQ(subscriber.stats().ended, 1u);
}

TEST_P(Ends, WhatWasLeftOutAtACloseIsWithTheEnd) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "*", {.window = 2, .ends = true}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 9; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  EXPECT_FALSE(publisher.close(0s));
  const std::vector<Sample> taken = take_until_end(subscriber);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken.back().ended->last_published, 9u);
  EXPECT_THAT(taken.back().gaps, ElementsAre(Gap{"vision", taken[0].incarnation, 3, 9,
                                                 GapReason::overflow, taken[0].entity}));
}

// Acts as if the process were killed while a reader is behind. On one host its head page says how
// many samples there were; over sockets it reports this while it lives.
TEST_P(Ends, OfAPublisherThatDiesSaysHowManySamplesThereWere) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  Publisher order = Publisher::declare(vision.node, "order").value();
  Subscriber subscriber =
      Subscriber::declare(motor.node, "count", {.window = 3, .ends = true}).value();
  Subscriber behind_it = Subscriber::declare(motor.node, "order").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(order.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 50; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
  detail::NodeCore::of(vision.node)->entities()->head_teller().on_time();
  ASSERT_TRUE(succeeds(order.publish(numbered(1))));
  (void)receive(behind_it);  // so the earlier report was heard
  vision.node.close();       // its process lives: no other may take its place
  ASSERT_TRUE(eventually([&] { return motor.node.nodes().size() == 1; }));
  part(motor, Death::proved);
  // The event does not wait for a reader.
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::ended).size() == 2; }));
  const std::vector<Sample> taken = take_until_end(subscriber);
  ASSERT_EQ(taken.size(), 4u);
  const Ended& ended = *taken.back().ended;
  EXPECT_EQ(ended.reason, EndReason::died);
  EXPECT_EQ(ended.exact, is_shm());
  EXPECT_EQ(ended.last_seen, 3u);
  EXPECT_EQ(ended.last_published, 50u);
  EXPECT_THAT(taken.back().gaps, ElementsAre(Gap{"vision", taken[0].incarnation, 4, 50,
                                                 GapReason::died, taken[0].entity}));
  EXPECT_EQ(subscriber.stats().missed + subscriber.stats().received, 50u);
  // Events keep their order: behind this one there is no further gap event.
  Program& late = start("late");
  const std::size_t came = told.of(FabricEventKind::came).size();
  const Publisher next = Publisher::declare(late.node, "count").value();
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::came).size() > came; }));
  EXPECT_EQ(told.of(FabricEventKind::gap).size(), 1u);
}

// The kernel closes the sockets of a process before it proves its death.
TEST_P(Ends, AProofThatComesBehindTheLossOfTheLinkIsAnEndToo) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.ends = true}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  vision.node.close();
  ASSERT_TRUE(eventually([&] { return motor.node.nodes().size() == 1; }));
  const auto links = ContextCore::of(motor.context)->links().all();
  part(motor, Death::not_proved);
  ASSERT_TRUE(eventually([&] { return subscriber.stats().publishers == 0; }));
  for (const auto& link : *links)
    link->fail(Error{ErrorCode::peer_lost, "test", "it died"}, Death::proved);
  const Ended ended = receive(subscriber).ended.value();
  EXPECT_EQ(ended.reason, EndReason::died);
  EXPECT_EQ(ended.last_published, 1u);
}

// Samples that arrived before a link was lost are read before those of the next link.
TEST_P(Ends, ALinkThatIsLostIsNoneAndKeepsTheOrder) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(8)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.ends = true}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  std::uint64_t sequence = 0;
  for (int round = 0; round < 5; ++round) {
    for (int n = 0; n < 3; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
    cut_links(motor);
    // It has a link again although nobody has read what arrived over the last one.
    ASSERT_TRUE(eventually(
        [&] { return publisher.stats().subscribers == 1 && subscriber.stats().publishers == 1; }));
    for (int n = 0; n < 2; ++n) ASSERT_TRUE(succeeds(publisher.publish(numbered(n))));
    for (int n = 0; n < 5; ++n) {
      const Sample sample = receive(subscriber);
      ASSERT_FALSE(sample.ended);
      EXPECT_EQ(sample.sequence, ++sequence);
      EXPECT_THAT(sample.gaps, IsEmpty());
    }
  }
  EXPECT_EQ(told.of(FabricEventKind::came).size(), 1u);
  EXPECT_THAT(told.of(FabricEventKind::ended), IsEmpty());
}

// The second stream has nothing unread, and ends while samples of the first one are unread.
TEST_P(Ends, OfTwoIncarnationsComeInTheirOrder) {
  Program& first = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.ends = true}).value();
  Publisher before = Publisher::declare(first.node, "count", {.qos = {keep_last(4)}}).value();
  ASSERT_TRUE(succeeds(before.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 2; ++n) ASSERT_TRUE(succeeds(before.publish(numbered(n))));
  const auto die = [&](Program& program, std::size_t ends) {
    program.node.close();
    ASSERT_TRUE(eventually([&] { return motor.node.nodes().size() == 1; }));
    part(motor, Death::proved);
    ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::ended).size() == ends; }));
  };
  ASSERT_NO_FATAL_FAILURE(die(first, 1));
  Program& second = start("vision");
  Publisher after = Publisher::declare(second.node, "count").value();
  ASSERT_TRUE(succeeds(after.wait_for_subscribers(1, kPatience)));
  ASSERT_NO_FATAL_FAILURE(die(second, 2));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  EXPECT_EQ(receive(subscriber).sequence, 2u);
  EXPECT_EQ(receive(subscriber).ended.value().last_seen, 2u);
  EXPECT_EQ(receive(subscriber).ended.value().last_seen, 0u);
}

TEST_P(Ends, TwoPublishersOfOneNodeAreToldApart) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Subscriber subscriber =
      Subscriber::declare(motor.node, "count", {.newest_only = true, .ends = true}).value();
  Publisher first = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  Publisher second = Publisher::declare(vision.node, "count", {.qos = {keep_last(4)}}).value();
  ASSERT_TRUE(succeeds(first.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(second.wait_for_subscribers(1, kPatience)));
  for (int n = 1; n <= 2; ++n) {
    ASSERT_TRUE(succeeds(first.publish(numbered(n))));
    ASSERT_TRUE(succeeds(second.publish(numbered(10 + n))));
  }
  ASSERT_TRUE(succeeds(first.close(kPatience)));
  std::map<std::uint32_t, std::vector<std::int64_t>> taken;
  std::uint32_t closed = 0;
  while (closed == 0 || taken.size() != 2 || taken.begin()->second.size() != 2 ||
         taken.rbegin()->second.size() != 2) {
    const Sample sample = receive(subscriber);
    if (sample.ended)
      closed = sample.entity;
    else
      taken[sample.entity].push_back(number_of(*sample.tensors));
  }
  ASSERT_TRUE(taken.contains(closed));
  EXPECT_THAT(taken[closed], ElementsAre(1, 2));
  EXPECT_THAT(taken.rbegin()->second, ElementsAre(11, 12)) << "none is dropped for the other";
  // A publisher that is declared again is another publisher.
  Publisher third = Publisher::declare(vision.node, "count").value();
  ASSERT_TRUE(succeeds(third.publish(numbered(21))));
  const Sample sample = receive(subscriber);
  EXPECT_EQ(sample.sequence, 1u);
  EXPECT_FALSE(taken.contains(sample.entity));
}

TEST_P(Ends, ACloseNamesAReaderWhoseLinkWasLostBefore) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(vision.node);
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  {
    Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
    motor.node.close();  // it does not return
    part(vision, Death::not_proved);
    ASSERT_TRUE(eventually([&] { return publisher.stats().subscribers == 0; }));
    ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
    EXPECT_TRUE(fails_with(publisher.close(kBriefly), ErrorCode::timeout, "motor"));
  }
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::unsent).size() == 1; }));
  EXPECT_EQ(told.of(FabricEventKind::unsent).front().key, "count");
}

// The publisher keeps its announcement meanwhile, and admits nobody else.
TEST_P(Ends, ACloseWaitsForAReaderWhoseLinkWasLost) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count", {.ends = true}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  cut_links(vision);  // the publisher's side: it knows
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  EXPECT_TRUE(succeeds(publisher.close(kPatience)));
  const std::vector<Sample> taken = take_until_end(subscriber);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken.back().ended->last_published, 1u);
  EXPECT_TRUE(taken.back().ended->exact);
}

TEST_P(Ends, ASampleOfAnotherSchemaIsInAGapAndToldOnce) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "count", {.qos = {keep_last(9)}}).value();
  Subscriber subscriber =
      Subscriber::declare(motor.node, "count", {.schema = numbered(0).schema()}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  TensorDict other;
  other.set("other", Tensor::of<float>({2}, {1, 2}));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1))));
  for (int n = 2; n <= 4; ++n) ASSERT_TRUE(succeeds(publisher.publish(other)));
  ASSERT_TRUE(succeeds(publisher.publish(as_bytes("raw"))));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(6))));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  const Sample sixth = receive(subscriber);
  EXPECT_EQ(sixth.sequence, 6u);
  EXPECT_THAT(sixth.gaps,
              ElementsAre(Gap{"vision", sixth.incarnation, 2, 5, GapReason::schema, sixth.entity}));
  EXPECT_EQ(subscriber.stats().schema_mismatches, 4u);
  // One event for each schema.
  EXPECT_TRUE(eventually([&] { return told.of(FabricEventKind::schema_mismatch).size() == 2; }));
  ASSERT_TRUE(succeeds(publisher.publish(other)));
  EXPECT_TRUE(
      fails_with(subscriber.recv(kBriefly), ErrorCode::timeout, "refused last: vision on count"));
  EXPECT_EQ(told.of(FabricEventKind::schema_mismatch).size(), 2u);
}

// A reader that is behind hears of no schema whose samples it will never receive.
TEST_P(Ends, SamplesOfEverNewSchemasAreInGapsAsOthersAre) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "shapes").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "*", {.window = 1}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  for (std::uint64_t n = 1; n <= 60; ++n) ASSERT_TRUE(succeeds(publisher.publish(patterned(n, n))));
  EXPECT_EQ(receive(subscriber).sequence, 1u);
  const Sample last = receive(subscriber);
  EXPECT_EQ(last.sequence, 60u);
  EXPECT_THAT(last.gaps, ElementsAre(Gap{"vision", last.incarnation, 2, 59, GapReason::overflow,
                                         last.entity}));
  EXPECT_EQ(subscriber.stats().violations, 0u);
}

TEST(GapsAtAnEnd, AreAllThatWasNotSeen) {
  GapFinder gaps;
  EXPECT_EQ(gaps.on_loss(9), GapFinder::Found{}) << "nothing was seen of it";
  (void)gaps.on_sample(3, 0);
  EXPECT_EQ(gaps.on_loss(3), GapFinder::Found{});
  EXPECT_EQ(gaps.on_loss(9).missing, (GapFinder::Missing{4, 9, GapReason::died}));
  EXPECT_EQ(gaps.on_loss(9), GapFinder::Found{}) << "told once";
  GapFinder thinned(GapFinder::Rate::thinned);
  (void)thinned.on_sample(3, 0);
  EXPECT_EQ(thinned.on_loss(9), GapFinder::Found{}) << "the rest may have been left out";
}

TEST(BreakPaces, DoubleUntilTheyAreWorn) {
  BreakPace pace;
  BreakPace::Time now{};
  EXPECT_EQ(pace.on_break(now).pause, 100ms);
  EXPECT_EQ(pace.on_break(now + 1s).pause, 200ms);
  const auto worn = pace.on_break(now + 2s);
  EXPECT_EQ(worn.pause, 30s);
  EXPECT_TRUE(worn.tell);
  EXPECT_FALSE(pace.on_break(now + 32s).tell) << "told once";
  EXPECT_EQ(pace.on_break(now + 120s).pause, 100ms) << "it had lasted";
}

TEST(HeadWords, AreReadWhereTheirNumberNamesOne) {
  const Context context = Context::create({}).value();
  detail::HeadPages pages(ContextCore::of(context)->publishing());
  const auto first = pages.take().value();
  const auto second = pages.take().value();
  first.store(7);
  second.store(~std::uint64_t{0});
  const auto& page = *first.page().segment;
  EXPECT_EQ(second.page().name, first.page().name);
  EXPECT_EQ(detail::HeadWord::load(page, first.number()), 7u);
  EXPECT_EQ(detail::HeadWord::load(page, second.number()), ~std::uint64_t{0});
  EXPECT_EQ(detail::HeadWord::load(page, 0), std::nullopt);
  EXPECT_EQ(detail::HeadWord::load(page, detail::HeadPage::kWords + 1), std::nullopt);
  std::uint32_t name = first.page().name;
  for (std::uint32_t n = 2; n < detail::HeadPage::kWords; ++n)
    name = pages.take().value().page().name;
  EXPECT_EQ(name, first.page().name);
  EXPECT_NE(pages.take().value().page().name, name) << "a new page";
}

TEST(EndsInWords, SayHowMuchIsKnown) {
  std::ostringstream text;
  text << Ended{"vi\nsion", 2, "count", 5, 24, 100, true, EndReason::died} << '|'
       << Ended{"vision", 2, "count", 5, 0, 0, false, EndReason::lost};
  EXPECT_EQ(text.str(),
            "vi sion ended on count (died): sample 24 is the last that arrived here, and 100 were "
            "published|vision ended on count (lost): no sample arrived here, and at least 0 were "
            "published");
}

}  // namespace
}  // namespace tendon::test
