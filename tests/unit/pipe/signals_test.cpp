// SPDX-License-Identifier: Apache-2.0
// A signal that interrupts system calls (Ctrl-C with a handler) ends no wait of ours.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

std::atomic<int> signals_seen{0};

class Signals : public PipeTest {
 protected:
  void SetUp() override {
    struct sigaction action {};
    action.sa_handler = [](int) { signals_seen.fetch_add(1); };
    action.sa_flags = 0;  // no SA_RESTART: calls fail with EINTR
    sigaction(SIGUSR1, &action, &former_);
  }
  void TearDown() override { sigaction(SIGUSR1, &former_, nullptr); }
  /// Interrupts `thread` many times, each time after the previous signal was handled.
  /// ThreadSanitizer may delay a signal until the next system call that it knows, so another one
  /// wakes the thread.
  static void interrupt(std::thread& thread) {
    for (int i = 0; i < 50; ++i) {
      const int before = signals_seen.load();
      ASSERT_TRUE(eventually([&] {
        EXPECT_EQ(pthread_kill(thread.native_handle(), SIGUSR1), 0);
        return signals_seen.load() != before;
      }));
    }
  }
  struct sigaction former_ {};
};
INSTANTIATE_TEST_SUITE_P(Ways, Signals, testing::Values(kShm, kTcp, kShmManual, kTcpManual),
                         way_name);

TEST_P(Signals, DoNotEndAReceive) {
  PipePair pair = connect({.wait_policy = WaitPolicy::blocking});
  std::thread receiver([&] {
    auto received = pair.client.recv(kPatience);
    while (!received && received.error().code == ErrorCode::busy)
      received = pair.client.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_EQ(number_of(*received), 3);
  });
  ASSERT_TRUE(eventually([&] {
    auto polled = pair.client.recv(0s);
    return !polled && polled.error().code == ErrorCode::busy;
  }));
  interrupt(receiver);
  ASSERT_TRUE(succeeds(pair.server.send(numbered(3), kPatience)));
  receiver.join();
}

TEST_P(Signals, DoNotEndASendOrATransfer) {
  PipePair pair = connect({.wait_policy = WaitPolicy::blocking, .link_cap_bytes = 32 << 20},
                          {.link_cap_bytes = 32 << 20});
  constexpr std::uint64_t kSize = 12 << 20;
  std::atomic<bool> done{false};
  std::thread sender([&] {
    for (std::uint64_t n = 0; n < 12; ++n)
      EXPECT_TRUE(succeeds(pair.client.send(patterned(n, kSize), kPatience)));
    done = true;
    EXPECT_TRUE(eventually([&] { return !done; }));  // lives until nobody signals it any more
  });
  for (std::uint64_t n = 0; n < 12; ++n) {
    interrupt(sender);
    ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), n, kSize));
  }
  ASSERT_TRUE(eventually([&] { return done.load(); }));
  done = false;
  sender.join();
}

TEST_P(Signals, DoNotEndAnAcceptOrAClose) {
  PipePair pair = connect({.wait_policy = WaitPolicy::blocking});
  std::atomic<bool> waiting{false};
  std::thread accepting([&] {
    waiting = true;
    auto accepted = pair.listener.accept(kPatience);
    ASSERT_TRUE(succeeds(accepted));
    EXPECT_EQ(number_of(accepted->recv(kPatience).value()), 9);
  });
  ASSERT_TRUE(eventually([&] { return waiting.load(); }));
  interrupt(accepting);
  Pipe from = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  ASSERT_TRUE(succeeds(from.send(numbered(9), kPatience)));
  accepting.join();
}

}  // namespace
}  // namespace tendon::test
