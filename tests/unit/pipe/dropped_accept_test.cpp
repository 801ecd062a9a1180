// SPDX-License-Identifier: Apache-2.0
// An accept_async() that is dropped while a pipe arrives for it.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

class DroppedAccept : public PipeTest {};
TENDON_ON_BOTH_PATHS(DroppedAccept);

TEST_P(DroppedAccept, GivesItsPipeToTheNextOne) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  PipePair pair = connect();
  constexpr int kRounds = 300;
  std::atomic<int> wanted{0};
  std::thread connecting([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (wanted < round) std::this_thread::yield();
      Pipe pipe = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
      EXPECT_EQ(number_of(pipe.recv(kPatience).value()), round);
    }
  });
  int usual = 2000;  // turns of the loop until a pipe comes
  for (int round = 1; round <= kRounds; ++round) {
    {
      Completion<Pipe> dropped = pair.listener.accept_async();
      wanted = round;
      const int patience = static_cast<int>(random() % static_cast<unsigned>(2 * usual));
      int turns = 0;
      while (turns < patience && !dropped.done()) ++turns;
      usual = std::clamp(turns < patience ? turns : usual + usual / 8, 100, 1'000'000);
    }
    auto pipe = pair.listener.accept(kPatience);
    ASSERT_TRUE(succeeds(pipe)) << "round " << round;
    ASSERT_TRUE(succeeds(pipe->send(numbered(round), kPatience)));
    ASSERT_TRUE(succeeds(pipe->close(kPatience)));
  }
  connecting.join();
}

TEST_P(DroppedAccept, GivesItsPipeToAnotherThatWaits) {
  PipePair pair = connect();
  std::optional<Completion<Pipe>> first = pair.listener.accept_async();
  Pipe from = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  ASSERT_TRUE(eventually([&] { return first->done(); }));
  Completion<Pipe> second = pair.listener.accept_async();
  EXPECT_FALSE(second.done());
  first.reset();
  Pipe to = second.wait(kPatience).value();
  ASSERT_TRUE(succeeds(from.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(to.recv(kPatience).value()), 1);
}

TEST_P(DroppedAccept, OfAClosedListenerRefusesItsPipe) {
  PipePair pair = connect();
  std::optional<Completion<Pipe>> first = pair.listener.accept_async();
  Pipe from = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  ASSERT_TRUE(eventually([&] { return first->done(); }));
  pair.listener.close();
  first.reset();
  EXPECT_TRUE(fails_with(from.recv(kPatience), ErrorCode::unreachable, "closed"));
}

}  // namespace
}  // namespace tendon::test
