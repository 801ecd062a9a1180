// SPDX-License-Identifier: Apache-2.0
// docs/memory.md, "A consumer that keeps what it receives": it must not stop the stream.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSize = 100'000;  // travels in a slot of 128 KiB

class RecvModes : public PipeTest {};
TENDON_ON_EVERY_WAY(RecvModes);

TEST_P(RecvModes, AReplayBufferThatKeepsEverythingDoesNotStopTheStream) {
  // A cap of 2 MiB holds 16 such messages; 200 are sent and kept.
  PipePair pair = connect({.link_cap_bytes = 2 << 20}, {.link_cap_bytes = 2 << 20});
  constexpr std::uint64_t kMessages = 200;
  std::thread producer([&] {
    for (std::uint64_t n = 0; n < kMessages; ++n)
      EXPECT_TRUE(succeeds(pair.client.send(patterned(n, kSize), kPatience))) << n;
  });
  std::vector<TensorDict> kept;
  for (std::uint64_t n = 0; n < kMessages; ++n) {
    auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received)) << n;
    kept.push_back(*std::move(received));
  }
  producer.join();
  for (std::uint64_t n = 0; n < kMessages; ++n) ASSERT_TRUE(is_patterned(kept[n], n, kSize)) << n;
  const PipeStats stats = pair.server.stats();
  EXPECT_EQ(stats.messages_received, kMessages);
  if (way().is_shm()) {
    EXPECT_GT(stats.copied_low_credit, kMessages / 2);
    EXPECT_LT(stats.copied_low_credit, kMessages) << "the first ones are lent";
    EXPECT_GE(stats.bytes_copied, stats.copied_low_credit * kSize);
  }
  // When they are released, lending begins again.
  kept.clear();
  const std::uint64_t before = pair.server.stats().copied_low_credit;
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kSize), kPatience)));
  ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, kSize));
  EXPECT_EQ(pair.server.stats().copied_low_credit, before);
}

TEST_P(RecvModes, CopyGivesTheSlotBackAtOnce) {
  PipePair pair = connect({.link_cap_bytes = 1 << 20}, {.link_cap_bytes = 1 << 20});
  std::vector<TensorDict> kept;
  for (std::uint64_t n = 0; n < 50; ++n) {
    ASSERT_TRUE(succeeds(pair.server.send(patterned(n, kSize), kPatience)));
    kept.push_back(pair.client.recv(RecvMode::copy, kPatience).value());
  }
  for (std::uint64_t n = 0; n < 50; ++n) EXPECT_TRUE(is_patterned(kept[n], n, kSize));
  EXPECT_EQ(pair.client.stats().copied_low_credit, 0u) << "asked for, not for want of credit";
  EXPECT_EQ(pair.client.stats().copies, way().is_shm() ? 50u : pair.client.stats().copies);
}

class ViewOnly : public PipeTest {};
INSTANTIATE_TEST_SUITE_P(Ways, ViewOnly, testing::Values(kShm, kShmManual), way_name);

TEST_P(ViewOnly, AnswersNoCreditAndLeavesTheMessage) {
  PipePair pair = connect({.link_cap_bytes = 1 << 20}, {.link_cap_bytes = 1 << 20});
  std::vector<TensorDict> kept;
  std::optional<Error> refused;
  std::uint64_t sent = 0;
  while (!refused && sent < 100) {
    ASSERT_TRUE(succeeds(pair.server.send(patterned(sent, kSize), kPatience)));
    ++sent;
    auto received = pair.client.recv(RecvMode::view_only, kPatience);
    if (received)
      kept.push_back(*std::move(received));
    else
      refused = received.error();
  }
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ErrorCode::no_credit) << refused->message();
  ASSERT_GE(kept.size(), 1u) << "the first one must be lent";
  // A second call finds it still there and refuses it again; a release lets it be received.
  EXPECT_TRUE(fails_with(pair.client.recv(RecvMode::view_only, 0s), ErrorCode::no_credit));
  const std::uint64_t next = kept.size();
  kept.erase(kept.begin());
  auto received = pair.client.recv(RecvMode::view_only, kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(is_patterned(*received, next, kSize));
  EXPECT_EQ(pair.client.stats().copied_low_credit, 0u);
}

TEST_P(ViewOnly, AtLeastTwoSlotsStayInCirculation) {
  // With view_only a consumer holds all it can; the producer can still send two.
  PipePair pair = connect({.link_cap_bytes = 1 << 20}, {.link_cap_bytes = 1 << 20});
  std::vector<TensorDict> kept;
  std::uint64_t sent = 0;
  for (;; ++sent) {
    ASSERT_LT(sent, 100u);
    ASSERT_TRUE(succeeds(pair.server.send(patterned(sent, kSize), kPatience)));
    auto received = pair.client.recv(RecvMode::view_only, kPatience);
    if (!received) break;
    kept.push_back(*std::move(received));
  }
  ++sent;
  // One unread message is there; a second fits without a wait.
  ASSERT_TRUE(succeeds(pair.server.send(patterned(sent, kSize), 0s)));
  EXPECT_TRUE(is_patterned(pair.client.recv(RecvMode::copy, kPatience).value(), sent - 1, kSize));
  EXPECT_TRUE(is_patterned(pair.client.recv(RecvMode::copy, kPatience).value(), sent, kSize));
}

TEST_P(ViewOnly, OneOfTwoLargeSlotsIsLent) {
  // Its slot has 512 KiB, so the cap holds two.
  constexpr std::uint64_t kLarge = 300'000;
  PipePair pair = connect({.link_cap_bytes = 1 << 20}, {.link_cap_bytes = 1 << 20});
  ASSERT_TRUE(succeeds(pair.server.send(patterned(1, kLarge), kPatience)));
  std::optional<TensorDict> kept = pair.client.recv(RecvMode::view_only, kPatience).value();
  for (std::uint64_t n = 2; n < 6; ++n) {
    ASSERT_TRUE(succeeds(pair.server.send(patterned(n, kLarge), kPatience)));
    EXPECT_TRUE(is_patterned(pair.client.recv(kPatience).value(), n, kLarge));
  }
  EXPECT_EQ(pair.client.stats().copied_low_credit, 4u);
  EXPECT_TRUE(is_patterned(*kept, 1, kLarge));
  kept.reset();
  ASSERT_TRUE(succeeds(pair.server.send(patterned(6, kLarge), kPatience)));
  EXPECT_TRUE(succeeds(pair.client.recv(RecvMode::view_only, kPatience)));
}

TEST_P(ViewOnly, ALargerSlotThanHalfOfTheCapIsNotLent) {
  PipePair pair = connect({.link_cap_bytes = 1 << 20}, {.link_cap_bytes = 1 << 20});
  ASSERT_TRUE(succeeds(pair.server.send(patterned(1, 600'000), kPatience)));
  EXPECT_TRUE(fails_with(pair.client.recv(RecvMode::view_only, kPatience), ErrorCode::no_credit));
  EXPECT_TRUE(is_patterned(pair.client.recv(kPatience).value(), 1, 600'000));
}

TEST_P(ViewOnly, SmallMessagesAreCopiedAndCountedAsSuch) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.server.send(patterned(1, 100), kPatience)));
  EXPECT_TRUE(is_patterned(pair.client.recv(kPatience).value(), 1, 100));
  EXPECT_EQ(pair.client.stats().copied_inline, 1u);
  EXPECT_EQ(pair.client.stats().copied_low_credit, 0u);
}

}  // namespace
}  // namespace tendon::test
