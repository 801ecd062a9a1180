// SPDX-License-Identifier: Apache-2.0
// An accept_async() that is dropped while a pipe arrives for it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <optional>
#include <thread>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/sleeping_thread.hpp"

namespace tendon::test {
namespace {

class DroppedAccept : public PipeTest {};
TENDON_ON_BOTH_PATHS(DroppedAccept);

// The first waiting accept is dropped repeatedly, so that a pipe arrives for that very one.
TEST_P(DroppedAccept, WhileItsPipeArrivesGivesItToTheNextOne) {
  PipePair pair = connect();
  constexpr int kRounds = 300;
  const std::jthread connecting([&] {
    for (int round = 0; round < kRounds; ++round) {
      Pipe pipe = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
      const auto received = pipe.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      EXPECT_EQ(number_of(*received), round);
    }
  });
  std::deque<Completion<Pipe>> waiting;
  for (int round = 0; round < kRounds; ++round) {
    while (waiting.size() < 3) waiting.push_back(pair.listener.accept_async());
    const bool came = eventually([&] { return waiting.front().done(); },
                                 [&] {
                                   waiting.pop_front();
                                   waiting.push_back(pair.listener.accept_async());
                                 });
    ASSERT_TRUE(came) << "round " << round;
    auto pipe = waiting.front().wait(kPatience);
    waiting.pop_front();
    ASSERT_TRUE(succeeds(pipe));
    ASSERT_TRUE(succeeds(pipe->send(numbered(round), kPatience)));
    ASSERT_TRUE(succeeds(pipe->close(kPatience)));
  }
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

TEST_P(DroppedAccept, GivesItsPipeToACallThatSleeps) {
  PipePair pair = connect();
  std::optional<Completion<Pipe>> first = pair.listener.accept_async();
  Pipe from = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  ASSERT_TRUE(eventually([&] { return first->done(); }));
  std::atomic<pid_t> thread{0};
  std::jthread accepting([&] {
    thread = gettid();
    ASSERT_TRUE(succeeds(pair.listener.accept(kPatience)));
  });
  ASSERT_TRUE(eventually([&] { return thread != 0; }));
  ASSERT_TRUE(falls_asleep(thread));
  first.reset();
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
