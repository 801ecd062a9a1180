// SPDX-License-Identifier: Apache-2.0
// Raw bytes with a small header beside TensorDicts on the same pipe.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> bytes_of(std::uint64_t seed, std::size_t size) {
  std::vector<std::byte> bytes(size);
  fill_pattern(bytes, seed);
  return bytes;
}

class RawBytes : public PipeTest {};
TENDON_ON_EVERY_WAY(RawBytes);

TEST_P(RawBytes, TagHeaderAndBytesArrive) {
  PipePair pair = connect();
  for (const std::size_t size : {0, 1, 4095, 4096, 8191, 8192, 8193, 100'000}) {
    for (const std::size_t header_size : {0, 1, 100, 4096}) {
      const auto bytes = bytes_of(size, size);
      const auto header = bytes_of(header_size + 1, header_size);
      ASSERT_TRUE(
          succeeds(pair.client.send(bytes, {.tag = 0xfffffffe, .header = header}, kPatience)));
      const Message message = pair.server.recv_message(kPatience).value();
      EXPECT_EQ(message.tag, 0xfffffffe);
      EXPECT_FALSE(message.tensors.has_value());
      EXPECT_TRUE(std::ranges::equal(message.bytes.bytes(), bytes)) << size;
      EXPECT_TRUE(std::ranges::equal(message.header.bytes(), header)) << header_size;
    }
  }
}

TEST_P(RawBytes, AreMegabytesToo) {
  PipePair pair = connect();
  const auto bytes = bytes_of(3, (5 << 20) + 3);
  std::thread sender(
      [&] { EXPECT_TRUE(succeeds(pair.client.send(bytes, {.tag = 1}, kPatience))); });
  const auto message = pair.server.recv_message(kPatience);
  sender.join();
  ASSERT_TRUE(succeeds(message));
  EXPECT_TRUE(std::ranges::equal(message->bytes.bytes(), bytes));
}

TEST_P(RawBytes, AHeaderAboveItsLimitIsRefusedAndNothingIsSent) {
  PipePair pair = connect();
  const auto header = bytes_of(1, 4097);
  EXPECT_TRUE(fails_with(pair.client.send(as_bytes("x"), {.header = header}, kPatience),
                         ErrorCode::limit_exceeded, "4096"));
  EXPECT_TRUE(fails_with(pair.server.recv_message(0s), ErrorCode::timeout));
}

TEST_P(RawBytes, RecvAnswersWrongKindAndLeavesThem) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(as_bytes("hello"), {.tag = 3}, kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::wrong_kind));
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::wrong_kind));
  TensorDict into = numbered(0);
  EXPECT_TRUE(fails_with(pair.server.recv_into(into, kPatience), ErrorCode::wrong_kind));
  EXPECT_TRUE(fails_with(pair.server.recv_async().wait(kPatience), ErrorCode::wrong_kind));
  EXPECT_EQ(as_text(pair.server.recv_message(kPatience).value().bytes.bytes()), "hello");
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 1);
}

TEST_P(RawBytes, RecvMessageReturnsEitherKind) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(5, 100'000), kPatience)));
  const Message message = pair.server.recv_message(kPatience).value();
  ASSERT_TRUE(message.tensors.has_value());
  EXPECT_TRUE(is_patterned(*message.tensors, 5, 100'000));
  EXPECT_EQ(message.bytes.size_bytes(), 0u);
}

TEST_P(RawBytes, TagsNeverMatch) {
  PipePair pair = connect();
  for (const std::uint32_t tag : {9u, 2u, 7u})
    ASSERT_TRUE(succeeds(pair.client.send(as_bytes("x"), {.tag = tag}, kPatience)));
  for (const std::uint32_t tag : {9u, 2u, 7u})
    EXPECT_EQ(pair.server.recv_message(kPatience).value().tag, tag);
}

TEST_P(RawBytes, OutliveThePipe) {
  std::optional<Message> small;
  std::optional<Message> large;
  {
    PipePair pair = connect();
    ASSERT_TRUE(
        succeeds(pair.client.send(bytes_of(1, 50), {.header = bytes_of(2, 10)}, kPatience)));
    ASSERT_TRUE(
        succeeds(pair.client.send(bytes_of(3, 50'000), {.header = bytes_of(4, 10)}, kPatience)));
    small = pair.server.recv_message(kPatience).value();
    large = pair.server.recv_message(kPatience).value();
  }
  EXPECT_TRUE(has_pattern(small->bytes.bytes(), 1));
  EXPECT_TRUE(has_pattern(small->header.bytes(), 2));
  EXPECT_TRUE(has_pattern(large->bytes.bytes(), 3));
  EXPECT_TRUE(has_pattern(large->header.bytes(), 4));
}

}  // namespace
}  // namespace tendon::test
