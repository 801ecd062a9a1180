// SPDX-License-Identifier: Apache-2.0
// Senders that wait for slots the peer holds. A sleeping sender must be woken when a slot returns,
// whichever of the waiting threads sleeps in epoll.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/sleeping_thread.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

/// Four slots of 1 MiB; the receiver holds one and has not taken the others.
struct FullLink {
  explicit FullLink(Progress progress) {
    ContextOptions options;
    options.link_cap_bytes = 4 << 20;
    options.wait_policy = WaitPolicy::blocking;
    pair.emplace(connect_pair({"", Transport::shm, progress}, options, options));
    EXPECT_TRUE(succeeds(pair->client.send(patterned(0, kSize), kPatience)));
    held = pair->server.recv(kPatience).value();
    for (std::uint64_t n = 1; n < 4; ++n)
      EXPECT_TRUE(succeeds(pair->client.send(patterned(n, kSize), kPatience)));
    EXPECT_TRUE(
        fails_with(pair->client.send(patterned(9, kSize), 0s), ErrorCode::resource_exhausted));
  }

  /// Returns the held slot, and whether that rang. The receiver's end releases it in this thread,
  /// so the count is current afterwards.
  bool release_rings() {
    const std::uint64_t before = doorbells();
    held.reset();
    return doorbells() != before;
  }

  static constexpr std::uint64_t kSize = 1'000'000;
  std::optional<PipePair> pair;
  std::optional<TensorDict> held;

 private:
  std::uint64_t doorbells() const {
    static constexpr std::string_view kWord = "doorbells ";
    const std::string text = pair->server_context.describe();
    return std::stoull(text.substr(text.find(kWord) + kWord.size()));
  }
};

class ReturnedSlots : public testing::TestWithParam<Progress> {
 protected:
  /// Lets `begin(link, receiving thread)` wait for a slot while a receiver sleeps, returns one, and
  /// reports whether that rang. `begin` returns a function that waits for the end of its send.
  template <class Begin>
  bool rings_for(Begin begin) {
    FullLink link(GetParam());
    std::atomic<pid_t> receiving{0};
    std::thread receiver([&] {
      receiving = gettid();
      EXPECT_EQ(number_of(link.pair->client.recv(kPatience).value()), 7);
    });
    EXPECT_TRUE(eventually([&] { return receiving != 0; }));
    EXPECT_TRUE(falls_asleep(receiving));  // it leads
    auto finish = begin(link, receiving.load());
    const bool rang = link.release_rings();
    finish();
    EXPECT_TRUE(succeeds(link.pair->server.send(numbered(7), kPatience)));
    receiver.join();
    return rang;
  }
};

// A sleeper that is awake for its heartbeat needs no ring, so the test may try again. A wait that
// was not announced never rings: it ends with the next heartbeat, half a second later.
constexpr int kTries = 3;

TEST_P(ReturnedSlots, WakeASenderThatFollowsASleepingReceiver) {
  const auto begin = [](FullLink& link, pid_t) {
    auto sending = std::make_shared<std::atomic<pid_t>>(0);
    auto sender = std::make_shared<std::thread>([&link, sending] {
      *sending = gettid();
      EXPECT_TRUE(succeeds(link.pair->client.send(patterned(4, FullLink::kSize), kPatience)));
    });
    EXPECT_TRUE(eventually([&] { return *sending != 0; }));
    EXPECT_TRUE(falls_asleep(*sending));
    return [sender] { sender->join(); };
  };
  bool rang = false;
  for (int i = 0; i < kTries && !rang; ++i) rang = rings_for(begin);
  EXPECT_TRUE(rang);
}

TEST_P(ReturnedSlots, FinishAnAsynchronousSendWhileAReceiverSleeps) {
  const auto begin = [](FullLink& link, pid_t receiving) {
    auto sent = std::make_shared<Completion<void>>(
        link.pair->client.send_async(patterned(4, FullLink::kSize)));
    EXPECT_TRUE(falls_asleep(receiving));  // it looked after the send and sleeps again
    return [sent] { EXPECT_TRUE(eventually([&] { return sent->done(); })); };
  };
  bool rang = false;
  for (int i = 0; i < kTries && !rang; ++i) rang = rings_for(begin);
  EXPECT_TRUE(rang);
}

INSTANTIATE_TEST_SUITE_P(Progresses, ReturnedSlots,
                         testing::Values(Progress::service, Progress::manual),
                         [](const auto& which) {
                           return which.param == Progress::manual ? "manual" : "service";
                         });

}  // namespace
}  // namespace tendon::test
