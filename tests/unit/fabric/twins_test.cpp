// SPDX-License-Identifier: Apache-2.0
// Live nodes of one name: which of them a subscriber follows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "support/batches.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using testing::ElementsAre;
using testing::IsEmpty;

class Twins : public NodesTest {
 protected:
  /// Receives until a sample with this number arrives.
  [[nodiscard]] static std::vector<std::int64_t> numbers_until(Subscriber& subscriber,
                                                               std::int64_t last) {
    std::vector<std::int64_t> numbers;
    do {
      const Sample sample = receive(subscriber);
      EXPECT_THAT(sample.gaps, IsEmpty());
      numbers.push_back(number_of(*sample.tensors));
    } while (numbers.back() != last);
    return numbers;
  }
  static void publish(Publisher& publisher, std::int64_t number) {
    EXPECT_TRUE(succeeds(publisher.publish(numbered(number))));
  }
};
TENDON_ON_BOTH_PATHS(Twins);

TEST_P(Twins, TheOneThatStartedLastIsFollowedWhileItsLinkLives) {
  Program& motor = start("motor");
  Program& old = start("vision");
  Program& fresh = start("vision");
  ASSERT_LT(ContextCore::of(old.context)->identity().incarnation,
            ContextCore::of(fresh.context)->identity().incarnation);
  Subscriber newest = Subscriber::declare(motor.node, "count", {.newest_only = true}).value();
  Subscriber all = Subscriber::declare(motor.node, "count").value();
  Publisher before = Publisher::declare(old.node, "count").value();
  ASSERT_TRUE(succeeds(before.wait_for_subscribers(2, kPatience)));
  publish(before, 1);
  EXPECT_THAT(numbers_until(newest, 1), ElementsAre(1));
  Publisher after = Publisher::declare(fresh.node, "count").value();
  ASSERT_TRUE(succeeds(newest.wait_for_publishers(2, kPatience)));
  ASSERT_TRUE(succeeds(after.wait_for_subscribers(2, kPatience)));
  publish(before, 2);
  // The sample arrives before or behind the next one of the other node: it is counted when it is
  // examined.
  ASSERT_TRUE(eventually([&] { return newest.stats().superseded == 1; },
                         [&] { EXPECT_FALSE(newest.recv(0s)); }));
  publish(after, 3);
  EXPECT_THAT(numbers_until(newest, 3), ElementsAre(3));
  std::multiset<std::int64_t> came;
  for (int n = 0; n < 3; ++n) came.insert(number_of(*receive(all).tensors));
  EXPECT_EQ(came, (std::multiset<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(all.stats().superseded, 0u);
  EXPECT_EQ(newest.stats().missed, 0u) << "what another node said instead is no loss";
  // The newer node is stopped, whatever its clock said: the other one is followed again.
  stop(fresh);
  ASSERT_TRUE(eventually([&] { return newest.stats().publishers == 1; },
                         [&] { EXPECT_FALSE(newest.recv(0s)); }));
  publish(before, 4);
  EXPECT_THAT(numbers_until(newest, 4), ElementsAre(4));
}

TEST_P(Twins, APublisherThatEndedIsFollowedNoMore) {
  Program& motor = start("motor");
  Program& old = start("vision");
  Program& fresh = start("vision");
  Subscriber newest = Subscriber::declare(motor.node, "count", {.newest_only = true}).value();
  Publisher before = Publisher::declare(old.node, "count").value();
  Publisher after = Publisher::declare(fresh.node, "count").value();
  ASSERT_TRUE(succeeds(newest.wait_for_publishers(2, kPatience)));
  ASSERT_TRUE(succeeds(after.close(kPatience)));
  ASSERT_TRUE(eventually([&] { return newest.stats().publishers == 1; },
                         [&] { EXPECT_FALSE(newest.recv(0s)); }));
  publish(before, 1);
  EXPECT_THAT(numbers_until(newest, 1), ElementsAre(1));
}

TEST_P(Twins, StartsAreComparedOnOneKeyAndBetweenNodesOfOneName) {
  Program& motor = start("motor");
  Program& old = start("vision");
  Program& fresh = start("vision");
  Program& other = start("memory");
  Subscriber newest = Subscriber::declare(motor.node, "*", {.newest_only = true}).value();
  Publisher first = Publisher::declare(old.node, "left").value();
  Publisher second = Publisher::declare(fresh.node, "right").value();
  Publisher third = Publisher::declare(other.node, "left").value();
  Publisher beside = Publisher::declare(other.node, "left").value();  // of the same node
  ASSERT_TRUE(succeeds(newest.wait_for_publishers(4, kPatience)));
  std::int64_t number = 0;
  for (Publisher* publisher : {&first, &second, &third, &beside}) publish(*publisher, ++number);
  std::set<std::int64_t> came;
  for (int n = 0; n < 4; ++n) came.insert(number_of(*receive(newest).tensors));
  EXPECT_EQ(came, (std::set<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(newest.stats().superseded, 0u);
}

TEST_P(Twins, ARefusalOfOldSamplesRefusesReplacedNodesToo) {
  Program& motor = start("motor");
  Program& old = start("vision");
  Program& fresh = start("vision");
  Subscriber careful = Subscriber::declare(motor.node, "count", {.max_age = 1h}).value();
  Subscriber both =
      Subscriber::declare(motor.node, "count", {.max_age = 1h, .newest_only = false}).value();
  Publisher before = Publisher::declare(old.node, "count").value();
  Publisher after = Publisher::declare(fresh.node, "count").value();
  ASSERT_TRUE(succeeds(careful.wait_for_publishers(2, kPatience)));
  ASSERT_TRUE(succeeds(both.wait_for_publishers(2, kPatience)));
  publish(before, 1);
  ASSERT_TRUE(eventually([&] { return careful.stats().superseded == 1; },
                         [&] { EXPECT_FALSE(careful.recv(0s)); }));
  EXPECT_THAT(numbers_until(both, 1), ElementsAre(1));
}

}  // namespace
}  // namespace tendon::test
