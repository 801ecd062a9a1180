// SPDX-License-Identifier: Apache-2.0
// docs/threads.md, "Who makes progress" and "Your own event loop".
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <thread>

#include "core/fd.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

bool readable(int fd, std::chrono::milliseconds patience) {
  pollfd wanted{fd, POLLIN, 0};
  return TEMP_FAILURE_RETRY(::poll(&wanted, 1, static_cast<int>(patience.count()))) == 1;
}

class ManualProgress : public PipeTest {};
INSTANTIATE_TEST_SUITE_P(Ways, ManualProgress, testing::Values(kShmManual, kTcpManual), way_name);

TEST_P(ManualProgress, NothingToDoAnswersFalse) {
  PipePair pair = connect();
  ASSERT_TRUE(eventually([&] { return !pair.client_context.progress(); }));
  EXPECT_FALSE(pair.client_context.progress());
}

TEST_P(ManualProgress, NothingHappensBetweenCalls) {
  PipePair pair = connect();
  Completion<TensorDict> received = pair.client.recv_async();
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  // The descriptor shows that there is work; the completion is pending until somebody does it.
  ASSERT_TRUE(!pair.client_context.arm() || readable(pair.client_context.fd(), kPatience));
  EXPECT_FALSE(received.done());
  ASSERT_TRUE(eventually([&] { return received.done(); }, [&] { pair.client_context.progress(); }));
  EXPECT_EQ(number_of(received.wait(0s).value()), 1);
}

TEST_P(ManualProgress, AHandshakeWaitsForTheManualListener) {
  Context server =
      Context::create({.progress = Progress::manual, .transport = way().transport}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  std::atomic<bool> gave_up{false};
  std::atomic<bool> connected{false};
  std::thread connecting([&] {
    Context client = Context::create({.transport = way().transport}).value();
    EXPECT_TRUE(
        fails_with(Pipe::connect(client, listener.address(), kBriefly), ErrorCode::timeout));
    gave_up = true;
    auto pipe = Pipe::connect(client, listener.address(), kPatience);
    EXPECT_TRUE(succeeds(pipe));
    connected = true;
    if (pipe) {
      EXPECT_EQ(number_of(pipe->recv(kPatience).value()), 4);
    }
  });
  ASSERT_TRUE(eventually([&] { return connected.load(); },
                         [&] {
                           if (gave_up) server.progress();
                         }));
  // The attempt that timed out may have left a pipe; the live one is the last.
  std::optional<Pipe> accepted;
  for (auto next = listener.accept(kPatience); next; next = listener.accept(0s))
    accepted = *std::move(next);
  ASSERT_TRUE(accepted);
  EXPECT_TRUE(succeeds(accepted->send(numbered(4), kPatience)));
  connecting.join();
}

TEST_P(ManualProgress, AnEventLoopOfTheUsersSleepsOnTheDescriptor) {
  PipePair pair = connect();
  detail::OwnedFd loop(epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{EPOLLIN, {}};
  ASSERT_EQ(epoll_ctl(loop.get(), EPOLL_CTL_ADD, pair.client_context.fd(), &wanted), 0);
  std::thread producer([&] {
    for (std::int64_t n = 0; n < 200; ++n)
      ASSERT_TRUE(succeeds(pair.server.send(numbered(n), kPatience)));
  });
  std::int64_t next = 0;
  Completion<TensorDict> received = pair.client.recv_async();
  while (next < 200) {
    if (received.done()) {
      ASSERT_EQ(number_of(received.wait(0s).value()), next);
      ++next;
      received = pair.client.recv_async();
    } else if (!pair.client_context.progress() && pair.client_context.arm() && !received.done()) {
      epoll_event event;
      ASSERT_EQ(TEMP_FAILURE_RETRY(epoll_wait(loop.get(), &event, 1, 20'000)), 1)
          << "a wake-up was lost before message " << next;
    }
  }
  producer.join();
}

class ServiceProgress : public PipeTest {};
TENDON_ON_BOTH_PATHS(ServiceProgress);

TEST_P(ServiceProgress, ProgressHasNothingToDo) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  EXPECT_FALSE(pair.client_context.progress());
}

TEST_P(ServiceProgress, TheDescriptorTellsThatACompletionCanBeCollected) {
  PipePair pair = connect();
  Completion<TensorDict> received = pair.client.recv_async();
  EXPECT_FALSE(received.done());
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  while (!received.done()) {
    if (!pair.client_context.arm() || received.done()) continue;
    ASSERT_TRUE(readable(pair.client_context.fd(), kPatience));
  }
  EXPECT_EQ(number_of(received.wait(0s).value()), 1);
}

TEST_P(ServiceProgress, WhoAsksForTheDescriptorAfterwardsIsToldToo) {
  PipePair pair = connect();
  Completion<TensorDict> received = pair.client.recv_async();
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  ASSERT_TRUE(eventually([&] { return received.done(); }));
  EXPECT_TRUE(readable(pair.client_context.fd(), kPatience));
  EXPECT_EQ(number_of(received.wait(0s).value()), 1);
}

TEST_P(ServiceProgress, AProgramThatComputesStillAnswers) {
  // No call of this process' user is waiting, and yet handshakes, transfers and flushes continue.
  PipePair pair = connect();
  for (int i = 0; i < 3; ++i) {
    Pipe further = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
    ASSERT_TRUE(succeeds(further.send(patterned(1, 2 << 20), kPatience)));
    ASSERT_TRUE(succeeds(further.flush(kPatience)));
  }
}

TEST_P(ServiceProgress, EveryWaitPolicyPassesMessages) {
  for (const WaitPolicy policy :
       {WaitPolicy::latency, WaitPolicy::balanced, WaitPolicy::blocking}) {
    PipePair pair = connect({.wait_policy = policy}, {.wait_policy = policy});
    std::thread echo([&] {
      for (int i = 0; i < 300; ++i) {
        auto received = pair.server.recv(kPatience);
        ASSERT_TRUE(succeeds(received));
        ASSERT_TRUE(succeeds(pair.server.send(*received, kPatience)));
      }
    });
    for (std::int64_t n = 0; n < 300; ++n) {
      ASSERT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));
      auto answer = pair.client.recv(kPatience);
      ASSERT_TRUE(succeeds(answer));
      ASSERT_EQ(number_of(*answer), n);
    }
    echo.join();
  }
}

}  // namespace
}  // namespace tendon::test
