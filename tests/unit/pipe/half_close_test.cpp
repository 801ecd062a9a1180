// SPDX-License-Identifier: Apache-2.0
// docs/protocol.md, "The end": how a stream ends.
#include <gtest/gtest.h>

#include <thread>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class HalfClose : public PipeTest {};
TENDON_ON_EVERY_WAY(HalfClose);

TEST_P(HalfClose, TheOtherDirectionGoesOn) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.finish_sending(kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 1);
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream, "client"));
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream)) << "again";
  for (std::int64_t n = 0; n < 20; ++n) {
    ASSERT_TRUE(succeeds(pair.server.send(numbered(n), kPatience)));
    ASSERT_EQ(number_of(pair.client.recv(kPatience).value()), n);
  }
  EXPECT_TRUE(fails_with(pair.client.send(numbered(2), kPatience), ErrorCode::pipe_closed));
  std::thread finishing([&] { EXPECT_TRUE(succeeds(pair.server.finish_sending(kPatience))); });
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::end_of_stream));
  finishing.join();
}

TEST_P(HalfClose, EverythingSentBeforeIsReadBeforeTheEnd) {
  PipePair pair = connect();
  std::thread producer([&] {
    for (std::uint64_t n = 0; n < 60; ++n)
      EXPECT_TRUE(succeeds(pair.client.send(patterned(n, n % 3 == 0 ? 300'000 : 50), kPatience)));
    EXPECT_TRUE(succeeds(pair.client.finish_sending(kPatience)));
  });
  for (std::uint64_t n = 0; n < 60; ++n)
    ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), n, n % 3 == 0 ? 300'000 : 50));
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
  producer.join();
}

TEST_P(HalfClose, CloseIsFlushAndEnd) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 500'000), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.close(kPatience)));
  EXPECT_TRUE(fails_with(pair.client.send(numbered(1), kPatience), ErrorCode::pipe_closed));
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::pipe_closed));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, 500'000));
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(HalfClose, AnOrderlyEndBehindTheLastMessageAnswersAFlush) {
  PipePair pair = connect();
  // Fewer messages than the window reports by itself.
  for (std::int64_t n = 0; n < 3; ++n) {
    ASSERT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));
    ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), n);
  }
  ASSERT_TRUE(succeeds(pair.server.close(kPatience)));
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::end_of_stream)) << "its end came";
  EXPECT_TRUE(succeeds(pair.client.flush(kPatience)));
  EXPECT_TRUE(fails_with(pair.client.send(numbered(3), kPatience), ErrorCode::pipe_closed));
  EXPECT_TRUE(succeeds(pair.client.close(kPatience)));
  EXPECT_TRUE(fails_with(pair.client.flush(kPatience), ErrorCode::pipe_closed)) << "closed here";
}

TEST_P(HalfClose, AnEndBeforeTheLastMessageWasTakenFailsAFlush) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(numbered(0), kPatience)));
  ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), 0);
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.flush(kPatience))) << "it arrived";
  ASSERT_TRUE(succeeds(pair.server.close(kPatience)));
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::end_of_stream));
  EXPECT_TRUE(fails_with(pair.client.flush(kPatience), ErrorCode::pipe_closed));
}

TEST_P(HalfClose, ACancelIsNoAnswerToAFlush) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(numbered(0), kPatience)));
  ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), 0);
  pair.server.cancel();
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::cancelled));
  EXPECT_TRUE(fails_with(pair.client.flush(kPatience), ErrorCode::cancelled));
}

TEST_P(HalfClose, CloseNeedsNobodyToReceive) {
  // flush means that the peer's Tendon holds it, not that a caller took it.
  PipePair pair = connect();
  for (std::int64_t n = 0; n < 10; ++n)
    ASSERT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.flush(kPatience)));
  ASSERT_TRUE(succeeds(pair.client.close(kPatience)));
  ASSERT_TRUE(succeeds(pair.client_context.close(kPatience)));
  for (std::int64_t n = 0; n < 10; ++n)
    ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), n);
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(HalfClose, ADroppedPipeStillDeliversWhatItSent) {
  PipePair pair = connect();
  {
    Pipe sender = std::move(pair.client);
    for (std::uint64_t n = 0; n < 5; ++n)
      ASSERT_TRUE(succeeds(sender.send(patterned(n, 200'000), kPatience)));
  }
  for (std::uint64_t n = 0; n < 5; ++n) {
    auto received = pair.server.recv(
        way().client_progress == Progress::manual ? Deadline(0s) : Deadline(kPatience));
    while (!received && received.error().code == ErrorCode::timeout) {
      pair.client_context.progress();
      received = pair.server.recv(0s);
    }
    ASSERT_TRUE(succeeds(received)) << n;
    EXPECT_TRUE(is_patterned(*received, n, 200'000));
  }
  auto end = pair.server.recv(0s);
  ASSERT_TRUE(eventually([&] { return !end && end.error().code != ErrorCode::timeout; },
                         [&] {
                           pair.client_context.progress();
                           end = pair.server.recv(0s);
                         }));
  EXPECT_TRUE(fails_with(end, ErrorCode::end_of_stream));
}

TEST_P(HalfClose, SendingToAPeerThatClosedFails) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.server.close(kPatience)));
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::end_of_stream));
  // The peer reads no more; the sender learns this, at the latest when its window is full.
  Result<void> sent;
  ASSERT_TRUE(
      eventually([&] { return !sent; }, [&] { sent = pair.client.send(numbered(1), kPatience); }));
  EXPECT_TRUE(fails_with(sent, ErrorCode::pipe_closed, "server"));
}

TEST_P(HalfClose, AContextThatEndsInOrderEndsTheStreamInOrder) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(numbered(5), kPatience)));
  ASSERT_TRUE(succeeds(pair.client_context.close(kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 5);
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(HalfClose, FinishTwiceAndCloseTwiceAreHarmless) {
  PipePair pair = connect();
  EXPECT_TRUE(succeeds(pair.client.finish_sending(kPatience)));
  EXPECT_TRUE(succeeds(pair.client.finish_sending(kPatience)));
  EXPECT_TRUE(succeeds(pair.client.close(kPatience)));
  (void)pair.client.close(kPatience);
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
}

}  // namespace
}  // namespace tendon::test
