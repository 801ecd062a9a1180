// SPDX-License-Identifier: Apache-2.0
// docs/threads.md, "Deadlines": the state after a deadline has passed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Deadlines : public PipeTest {};
TENDON_ON_EVERY_WAY(Deadlines);

TEST_P(Deadlines, ZeroPolls) {
  PipePair pair = connect();
  EXPECT_TRUE(fails_with(pair.client.recv(0s), ErrorCode::timeout, "server"));
  EXPECT_TRUE(fails_with(pair.client.recv_message(0s), ErrorCode::timeout));
  TensorDict into = numbered(0);
  EXPECT_TRUE(fails_with(pair.client.recv_into(into, 0s), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(pair.listener.accept(0s), ErrorCode::timeout));
  EXPECT_TRUE(succeeds(pair.client.send(numbered(1), 0s))) << "there is room: no wait is needed";
  EXPECT_TRUE(succeeds(pair.client.loan(bytes_schema(10'000), 0s)));
  ASSERT_TRUE(succeeds(pair.client.flush(kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(0s).value()), 1) << "it is there: no wait is needed";
}

TEST_P(Deadlines, TheLargestDurationIsNotThePast) {
  PipePair pair = connect();
  std::thread later(
      [&] { EXPECT_TRUE(succeeds(pair.server.send(numbered(4), std::chrono::hours::max()))); });
  EXPECT_EQ(number_of(pair.client.recv(std::chrono::hours::max()).value()), 4);
  later.join();
}

TEST_P(Deadlines, ATimedOutRecvLeavesTheNextMessage) {
  PipePair pair = connect();
  EXPECT_TRUE(fails_with(pair.client.recv(kBriefly), ErrorCode::timeout, "server"));
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 1);
}

TEST_P(Deadlines, ATimedOutWaitLeavesTheOperationPending) {
  PipePair pair = connect();
  Completion<TensorDict> pending = pair.client.recv_async();
  EXPECT_TRUE(fails_with(pending.wait(0s), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(pending.wait(kBriefly), ErrorCode::timeout));
  EXPECT_EQ(pending.state(), CompletionStatus::pending);
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pending.wait(kPatience).value()), 1);
}

TEST_P(Deadlines, ATimedOutSendIsNeverDeliveredAndLaterOnesAre) {
  // Nobody receives, so windows and slots fill up on every path, and the send that finds no room
  // times out.
  PipePair pair =
      connect({.link_cap_bytes = 4 << 20}, {.link_cap_bytes = 4 << 20, .pool_cap_bytes = 4 << 20});
  constexpr std::uint64_t kSize = 300'000;
  std::vector<std::uint64_t> delivered;
  std::uint64_t n = 0;
  int failures = 0;
  while (failures < 3) {
    ASSERT_LT(n, 2000u) << "a peer that reads nothing was never noticed";
    const auto sent = pair.client.send(patterned(n, kSize), kBriefly);
    if (sent) {
      delivered.push_back(n);
    } else {
      ++failures;
      // The peer holds the slots, or the window is full; the error names it in both cases.
      EXPECT_TRUE(sent.error().code == ErrorCode::timeout ||
                  sent.error().code == ErrorCode::resource_exhausted)
          << sent.error().message();
      EXPECT_NE(sent.error().detail.find("server"), std::string::npos) << sent.error().detail;
    }
    ++n;
  }
  EXPECT_GE(delivered.size(), 2u);
  std::thread sender(
      [&] { EXPECT_TRUE(succeeds(pair.client.send(patterned(999'999, kSize), kPatience))); });
  for (const std::uint64_t expected : delivered)
    ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), expected, kSize)) << expected;
  ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 999'999, kSize));
  sender.join();
}

TEST_P(Deadlines, SmallMessagesToAPeerThatReadsNothingAreBoundedToo) {
  PipePair pair = connect();
  std::int64_t n = 0;
  Result<void> sent;
  while (sent && n < 5000) {
    sent = pair.client.send(numbered(n), kBriefly);
    if (sent) ++n;
  }
  EXPECT_TRUE(fails_with(sent, ErrorCode::timeout, "server"));
  EXPECT_LE(n, 1024) << "messages are bounded by a window";
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), i);
  ASSERT_TRUE(succeeds(pair.client.send(numbered(-1), kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), -1);
}

TEST_P(Deadlines, WhateverTheDeadlineASendIsDeliveredExactlyWhenItSaidSo) {
  // Deadlines that pass before, within and after the copy or the transfer of a large message.
  const char* given = std::getenv("TENDON_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::cout << "TENDON_TEST_SEED=" << seed << std::endl;
  std::mt19937_64 random(seed);
  PipePair pair = connect({.link_cap_bytes = 64 << 20}, {.link_cap_bytes = 64 << 20});
  constexpr std::uint64_t kSize = 6 << 20;
  constexpr int kSends = 60;
  std::vector<std::uint64_t> delivered;
  std::vector<std::uint64_t> received;
  std::thread receiver([&] {
    for (;;) {
      auto message = pair.server.recv(kPatience);
      ASSERT_TRUE(succeeds(message));
      if (message->contains("n")) return;
      const std::uint64_t seen = message->value("seed").as_u64();
      ASSERT_TRUE(is_patterned(*message, seen, kSize));
      received.push_back(seen);
    }
  });
  for (std::uint64_t n = 0; n < kSends; ++n) {
    TensorDict batch = patterned(n, kSize);
    batch.set("seed", n);
    const auto sent = pair.client.send(batch, std::chrono::microseconds(random() % 4000));
    if (sent) {
      delivered.push_back(n);
    } else if (sent.error().code != ErrorCode::timeout &&
               sent.error().code != ErrorCode::resource_exhausted) {
      ADD_FAILURE() << sent.error().message();
    }
    fill_pattern(batch["x"].mutable_bytes(), 12345);  // whatever the result, it is ours again
  }
  ASSERT_TRUE(succeeds(pair.client.send(numbered(0), kPatience)));
  receiver.join();
  EXPECT_EQ(received, delivered) << "seed " << seed;
  std::cout << delivered.size() << " of " << kSends << " were delivered\n";
}

TEST_P(Deadlines, AFlushThatTimesOutMayBeRepeated) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 500'000), kPatience)));
  const auto flushed = pair.client.flush(0s);
  if (!flushed) {
    EXPECT_TRUE(fails_with(flushed, ErrorCode::timeout, "server"));
  }
  EXPECT_TRUE(succeeds(pair.client.flush(kPatience)));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, 500'000));
}

/// The receiving end makes progress only in its calls: over tcp a large message stops halfway.
class StuckReceiver : public testing::Test {};

TEST_F(StuckReceiver, TheSendersTimeoutAbortsHalfAMessageAndThePipeLivesOn) {
  // The manual end connects, so that its call drives its handshake.
  PipePair pair = connect_pair(kTcpManual);
  constexpr std::uint64_t kHuge = 96 << 20;  // more than kernel buffers take
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  ASSERT_TRUE(
      fails_with(pair.server.send(patterned(2, kHuge), 200ms), ErrorCode::timeout, "client"));
  std::thread sender([&] {
    EXPECT_TRUE(succeeds(pair.server.send(numbered(3), kPatience)));
    EXPECT_TRUE(succeeds(pair.server.send(patterned(4, 3 << 20), kPatience)));
  });
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 1);
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 3);
  EXPECT_TRUE(is_patterned(pair.client.recv(kPatience).value(), 4, 3 << 20));
  sender.join();
}

TEST_F(StuckReceiver, APolledSenderMayTryAsOftenAsItLikes) {
  PipePair pair = connect_pair(kTcpManual);
  constexpr std::uint64_t kSize = 20'000;
  const TensorDict batch = patterned(1, kSize);
  int sent_count = 0;
  int given_up = 0;
  for (int round = 0; round < 10'000; ++round) {
    const auto sent = pair.server.send(batch, 0s);
    ASSERT_TRUE(sent || sent.error().code == ErrorCode::timeout) << sent.error().message();
    ++(sent ? sent_count : given_up);
  }
  EXPECT_GT(given_up, 1000);
  // All that has arrived is taken in before the first receive.
  while (pair.client_context.progress()) {
  }
  std::jthread last([&] { EXPECT_TRUE(succeeds(pair.server.send(numbered(7), kPatience))); });
  for (int i = 0; i < sent_count; ++i) {
    auto received = pair.client.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(is_patterned(*received, 1, kSize));
  }
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 7);
}

TEST_F(StuckReceiver, ATimedOutRecvIntoLeavesTheMessage) {
  PipePair pair = connect_pair(kTcpManual);
  constexpr std::uint64_t kHuge = 96 << 20;
  const TensorDict huge = patterned(7, kHuge);
  Completion<void> sent = pair.server.send_async(huge);
  TensorDict destination = patterned(0, kHuge);
  // Polls until a part has arrived, without the time to take it all.
  int timeouts = 0;
  Result<void> received = pair.client.recv_into(destination, 1ms);
  while (!received && received.error().code == ErrorCode::timeout && ++timeouts < 100'000)
    received = pair.client.recv_into(destination, 1ms);
  ASSERT_TRUE(succeeds(received));
  EXPECT_GT(timeouts, 0);
  EXPECT_TRUE(is_patterned(destination, 7, kHuge));
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 1);
}

TEST_P(Deadlines, ACopyThatStoppedStartsAnewInMemoryTheCallerHasUsedSince) {
  PipePair pair = connect();
  constexpr std::uint64_t kLarge = 48 << 20;
  Completion<void> sent = pair.server.send_async(patterned(7, kLarge));
  TensorDict destination = patterned(0, kLarge);
  int timeouts = 0;
  Result<void> received = pair.client.recv_into(destination, 0s);
  while (!received && received.error().code == ErrorCode::timeout && ++timeouts < 100'000) {
    destination["x"].mutable_bytes()[0] ^= std::byte{0xff};
    received = pair.client.recv_into(destination, 0s);
  }
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(is_patterned(destination, 7, kLarge));
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
}

}  // namespace
}  // namespace tendon::test
