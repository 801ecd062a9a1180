// SPDX-License-Identifier: Apache-2.0
// Nothing degrades silently: the number of copies and their reasons can be read.
#include <gtest/gtest.h>

#include <sstream>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Stats : public PipeTest {};
TENDON_ON_EVERY_WAY(Stats);

TEST_P(Stats, CountMessagesAndPayloadAtEachEnd) {
  PipePair pair = connect();
  EXPECT_EQ(pair.client.stats().messages_sent, 0u);
  for (std::uint64_t n = 0; n < 4; ++n) {
    ASSERT_TRUE(succeeds(pair.client.send(patterned(n, 50'000), kPatience)));
    ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  }
  ASSERT_TRUE(succeeds(pair.client.send(as_bytes("12345"), {}, kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv_message(kPatience)));
  const PipeStats sender = pair.client.stats();
  EXPECT_EQ(sender.messages_sent, 5u);
  EXPECT_EQ(sender.bytes_sent, 4u * 50'000 + 5);
  EXPECT_EQ(sender.messages_received, 0u);
  EXPECT_EQ(sender.loans_sent, 0u);
  const PipeStats receiver = pair.server.stats();
  EXPECT_EQ(receiver.messages_received, 5u);
  EXPECT_EQ(receiver.bytes_received, 4u * 50'000 + 5);
  EXPECT_EQ(receiver.messages_sent, 0u);
}

TEST_P(Stats, OnSharedMemorySendCopiesOnceAndAViewNever) {
  if (!way().is_shm()) GTEST_SKIP() << "sockets copy in the kernel";
  PipePair pair = connect();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 50'000), kPatience)));
    ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  }
  EXPECT_EQ(pair.client.stats().copies, 3u);
  EXPECT_EQ(pair.client.stats().bytes_copied, 150'000u);
  EXPECT_EQ(pair.server.stats().copies, 0u);
  TensorDict into = patterned(0, 50'000);
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 50'000), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv_into(into, kPatience)));
  EXPECT_EQ(pair.server.stats().copies, 1u);
  EXPECT_EQ(pair.server.stats().bytes_copied, 50'000u);
}

TEST_P(Stats, AnErrorCountsNothing) {
  PipePair pair = connect();
  EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
  EXPECT_EQ(pair.server.stats().messages_received, 0u);
  EXPECT_EQ(pair.server.stats().waits, 0u) << "a poll does not wait";
  EXPECT_TRUE(fails_with(pair.server.recv(kBriefly), ErrorCode::timeout));
  EXPECT_EQ(pair.server.stats().waits, 1u);
}

TEST_P(Stats, CanBePrinted) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 50'000), kPatience)));
  std::ostringstream text;
  text << pair.client.stats();
  EXPECT_NE(text.str().find("50000"), std::string::npos) << text.str();
}

}  // namespace
}  // namespace tendon::test
