// SPDX-License-Identifier: Apache-2.0
// docs/threads.md, "Who may call what": a Pipe has one sender and one receiver at a time; a third
// thread gets `busy`.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class PipeThreads : public PipeTest {};
TENDON_ON_EVERY_WAY(PipeThreads);

TEST_P(PipeThreads, ASecondReceiverIsBusyAndTakesNothing) {
  PipePair pair = connect();
  std::int64_t got = 0;
  std::thread receiver([&] {
    // The other thread's polls may be first; this one then meets `busy`, and tries again.
    auto received = pair.client.recv(kPatience);
    while (!received && received.error().code == ErrorCode::busy)
      received = pair.client.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    got = number_of(*received);
  });
  ASSERT_TRUE(eventually([&] {
    auto polled = pair.client.recv(0s);
    return !polled && polled.error().code == ErrorCode::busy;
  }));
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::busy))
      << "busy at once, not after a wait";
  EXPECT_TRUE(fails_with(pair.client.recv_message(0s), ErrorCode::busy));
  TensorDict into = numbered(0);
  EXPECT_TRUE(fails_with(pair.client.recv_into(into, 0s), ErrorCode::busy));
  ASSERT_TRUE(succeeds(pair.server.send(numbered(9), kPatience)));
  receiver.join();
  EXPECT_EQ(got, 9);
}

TEST_P(PipeThreads, ASecondSenderIsBusyAndSendsNothing) {
  PipePair pair = connect();
  // Fill the window, so that the next send waits.
  std::int64_t sent = 0;
  while (pair.client.send(numbered(sent), 0s)) ASSERT_LT(++sent, 5000);
  std::thread sender([&] {
    auto done = pair.client.send(numbered(sent), kPatience);
    while (!done && done.error().code == ErrorCode::busy)
      done = pair.client.send(numbered(sent), kPatience);
    EXPECT_TRUE(succeeds(done));
  });
  ASSERT_TRUE(eventually([&] {
    auto polled = pair.client.send(numbered(-5), 0s);
    return !polled && polled.error().code == ErrorCode::busy;
  }));
  for (std::int64_t n = 0; n <= sent; ++n)
    ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), n);
  sender.join();
  EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
}

TEST_P(PipeThreads, OneSenderAndOneReceiverAtEachEndAtOnce) {
  PipePair pair = connect();
  constexpr std::uint64_t kMessages = 300;
  const auto send_all = [&](Pipe& pipe) {
    for (std::uint64_t n = 0; n < kMessages; ++n)
      ASSERT_TRUE(succeeds(pipe.send(patterned(n, n % 10 == 0 ? 60'000 : 100), kPatience)));
  };
  const auto receive_all = [&](Pipe& pipe) {
    for (std::uint64_t n = 0; n < kMessages; ++n) {
      auto received = pipe.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      ASSERT_TRUE(is_patterned(*received, n, n % 10 == 0 ? 60'000 : 100)) << n;
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { send_all(pair.client); });
  threads.emplace_back([&] { receive_all(pair.client); });
  threads.emplace_back([&] { send_all(pair.server); });
  threads.emplace_back([&] { receive_all(pair.server); });
  for (auto& thread : threads) thread.join();
}

TEST_P(PipeThreads, ManyPipesOfOneContextWaitAtOnce) {
  // One thread leads the epoll, the others sleep behind it; each must receive its message.
  PipePair pair = connect();
  constexpr int kPipes = 8;
  std::vector<std::pair<Pipe, Pipe>> pipes;
  for (int i = 0; i < kPipes; ++i) pipes.push_back(another_pipe(pair));
  std::vector<std::thread> receivers;
  for (int i = 0; i < kPipes; ++i) {
    receivers.emplace_back([&, i] {
      for (std::int64_t n = 0; n < 50; ++n) {
        auto received = pipes[i].first.recv(kPatience);
        ASSERT_TRUE(succeeds(received)) << i;
        ASSERT_EQ(number_of(*received), n * 100 + i);
      }
    });
  }
  for (std::int64_t n = 0; n < 50; ++n)
    for (int i = kPipes - 1; i >= 0; --i)
      ASSERT_TRUE(succeeds(pipes[i].second.send(numbered(n * 100 + i), kPatience)));
  for (auto& receiver : receivers) receiver.join();
}

TEST_P(PipeThreads, ViewsMayBeReleasedByAnyThread) {
  PipePair pair = connect({.link_cap_bytes = 4 << 20}, {.link_cap_bytes = 4 << 20});
  for (std::uint64_t n = 0; n < 100; ++n) {
    ASSERT_TRUE(succeeds(pair.server.send(patterned(n, 200'000), kPatience)));
    TensorDict received = pair.client.recv(kPatience).value();
    std::thread([n, moved = std::move(received)] {
      EXPECT_TRUE(is_patterned(moved, n, 200'000));
    }).join();
  }
  EXPECT_EQ(pair.client.stats().copied_low_credit, 0u);
}

// Their messages are counted at one link, whose lock protects nothing any more.
TEST_P(PipeThreads, PipesOfAClosedContextAreDroppedByAnyThreads) {
  PipePair pair = connect();
  constexpr int kPipes = 4;
  constexpr std::int64_t kMessages = 50;
  std::vector<std::pair<Pipe, Pipe>> pipes;
  for (int i = 0; i < kPipes; ++i) {
    pipes.push_back(another_pipe(pair));
    for (std::int64_t n = 0; n < kMessages; ++n)
      ASSERT_TRUE(
          succeeds(pipes.back().first.send(patterned(1, n % 2 == 0 ? 10 : 10'000), kPatience)));
    ASSERT_TRUE(succeeds(pipes.back().first.flush(kPatience)));
  }
  const auto link = detail::ContextCore::of(pair.server_context)->links().all()->front();
  EXPECT_TRUE(eventually([&] { return link->stats().messages_received >= kPipes * kMessages; }));
  EXPECT_NE(link->stats().held_bytes, 0u);
  ASSERT_TRUE(succeeds(pair.server_context.close(kPatience)));
  std::vector<std::thread> threads;
  for (auto& [from, to] : pipes)
    threads.emplace_back(
        [dropped = std::move(to)]() mutable { const Pipe gone = std::move(dropped); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(link->stats().held_bytes, 0u);
}

TEST_P(PipeThreads, AContextClosedElsewhereReleasesWhoWaits) {
  PipePair pair = connect();
  std::thread receiver([&] {
    auto received = pair.client.recv(Deadline::never());
    while (!received && received.error().code == ErrorCode::busy)
      received = pair.client.recv(Deadline::never());
    EXPECT_TRUE(fails_with(received, ErrorCode::context_closed));
  });
  ASSERT_TRUE(eventually([&] {
    auto polled = pair.client.recv(0s);
    return !polled && polled.error().code == ErrorCode::busy;
  }));
  ASSERT_TRUE(succeeds(pair.client_context.close(kPatience)));
  receiver.join();
}

}  // namespace
}  // namespace tendon::test
