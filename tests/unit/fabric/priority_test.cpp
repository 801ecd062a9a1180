// SPDX-License-Identifier: Apache-2.0
// Samples of priority `control` beside normal ones that fill a link.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "support/batches.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;

class Priorities : public NodesTest {};
TENDON_ON_BOTH_PATHS(Priorities);

// The reader takes nothing from its ring, in which normal samples leave no place for further ones.
TEST_P(Priorities, NormalSamplesLeaveRoomForThoseOfControl) {
  if (!way().is_shm()) GTEST_SKIP() << "a ring is of shared memory";
  constexpr std::uint64_t kSize = 7000;  // inline
  Program& vision = start("vision");
  Program& motor = start("motor", {.progress = Progress::manual});
  std::vector<Publisher> frames;
  std::vector<Subscriber> subscribers;
  for (int n = 0; n < 4; ++n) {
    const std::string key = "frames/" + std::to_string(n);
    frames.push_back(Publisher::declare(vision.node, key, {.qos = {keep_last(32)}}).value());
    subscribers.push_back(Subscriber::declare(motor.node, key).value());
  }
  Publisher commands =
      Publisher::declare(vision.node, "commands",
                         {.qos = {.history = keep_last(4), .priority = Priority::control}})
          .value();
  Subscriber commanded = Subscriber::declare(motor.node, "commands").value();
  const auto is_connected = [&](Publisher& publisher) {
    return eventually([&] {
      (void)motor.context.progress();
      return publisher.wait_for_subscribers(1, kBriefly).has_value();
    });
  };
  for (Publisher& publisher : frames) ASSERT_TRUE(is_connected(publisher));
  ASSERT_TRUE(is_connected(commands));

  std::uint64_t shown = 0;
  for (Publisher& publisher : frames) {
    for (std::uint64_t sequence = 1; sequence <= 16; ++sequence)
      shown += publisher.publish(patterned(sequence, kSize)).value().shown;
  }
  EXPECT_GT(shown, 16u);
  EXPECT_LT(shown, 4u * 16) << "it is the ring that is full, not their windows";
  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence)
    EXPECT_THAT(commands.publish(patterned(sequence, kSize)).value().lagging, IsEmpty());
  EXPECT_FALSE(frames.back().publish(patterned(17, kSize)).value().lagging.empty());

  for (std::uint64_t sequence = 1; sequence <= 4; ++sequence)
    EXPECT_EQ(receive(commanded).sequence, sequence);
  for (Subscriber& subscriber : subscribers) EXPECT_EQ(receive(subscriber).sequence, 1u);
}

}  // namespace
}  // namespace tendon::test
