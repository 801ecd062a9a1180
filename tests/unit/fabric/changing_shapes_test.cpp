// SPDX-License-Identifier: Apache-2.0
// Samples whose shapes always change: what a subscriber that is behind receives, and what its gaps
// say.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "support/batches.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class ChangingShapes : public NodesTest {
 protected:
  // Publishes in two parts. The subscriber takes nothing of the first part and all of the second,
  // in which the publisher stays in step with it.
  void publish_past_a_reader_that_is_behind(std::uint64_t size_bytes) {
    Program& vision = start("vision");
    Program& motor = start("motor");
    Publisher publisher =
        Publisher::declare(vision.node, "points", {.qos = {keep_last(8)}}).value();
    Subscriber subscriber = Subscriber::declare(motor.node, "points", {.window = 4}).value();
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
    constexpr std::uint64_t kBehind = 300;
    constexpr std::uint64_t kAll = 400;
    for (std::uint64_t n = 1; n <= kBehind; ++n)
      ASSERT_TRUE(succeeds(publisher.publish(patterned(n, size_bytes + n))));
    std::uint64_t last = 0;
    std::uint64_t missing = 0;
    const auto take = [&] {
      const Sample sample = receive(subscriber);
      missing += missing_in(sample);
      EXPECT_EQ(sample.sequence, last + missing_in(sample) + 1);
      EXPECT_TRUE(is_patterned(*sample.tensors, sample.sequence, size_bytes + sample.sequence));
      last = sample.sequence;
    };
    while (last < kBehind) ASSERT_NO_THROW(take()) << "behind " << last;
    EXPECT_GT(missing, 200u);
    for (std::uint64_t n = kBehind + 1; n <= kAll; ++n) {
      ASSERT_TRUE(succeeds(publisher.publish(patterned(n, size_bytes + n))));
      ASSERT_NO_THROW(take()) << "behind " << last;
    }
    EXPECT_EQ(last, kAll);
  }
};
TENDON_ON_BOTH_PATHS(ChangingShapes);

TEST_P(ChangingShapes, SmallOnesReachASubscriberThatWasBehind) {
  publish_past_a_reader_that_is_behind(1);
}

TEST_P(ChangingShapes, LargeOnesReachASubscriberThatWasBehind) {
  publish_past_a_reader_that_is_behind(20'000);
}

// These schemas travel as transfers of their own.
TEST_P(ChangingShapes, WideOnesReachASubscriberThatWasBehind) {
  Program& vision = start("vision");
  Program& motor = start("motor");
  Publisher publisher = Publisher::declare(vision.node, "points", {.qos = {keep_last(8)}}).value();
  Subscriber subscriber = Subscriber::declare(motor.node, "points", {.window = 4}).value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  constexpr std::uint64_t kAll = 60;
  for (std::uint64_t n = 1; n <= kAll; ++n) {
    TensorDict wide;
    for (int i = 0; i < 400; ++i)
      wide.set("a name that takes some room in the encoding " + std::to_string(i),
               Tensor::of<std::uint8_t>({static_cast<std::int64_t>(n)},
                                        std::vector<std::uint8_t>(n, 7)));
    ASSERT_GT(wide.schema()->encoding().size(), 8192u);
    ASSERT_TRUE(succeeds(publisher.publish(wide)));
  }
  std::uint64_t last = 0;
  while (last < kAll) {
    auto sample = subscriber.recv(kPatience);
    ASSERT_TRUE(succeeds(sample)) << "behind " << last;
    EXPECT_EQ(sample->sequence, last + missing_in(*sample) + 1);
    last = sample->sequence;
  }
}

}  // namespace
}  // namespace tendon::test
