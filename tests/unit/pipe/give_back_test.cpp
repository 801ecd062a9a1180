// SPDX-License-Identifier: Apache-2.0
// A blocking receive whose caller could not use the message returns it to the pipe, for the next
// one.
#include <gtest/gtest.h>

#include <utility>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class GiveBack : public PipeTest {};
TENDON_ON_BOTH_PATHS(GiveBack);

Message of_tensors(TensorDict batch) {
  return {.tag = 0, .header = {}, .tensors = std::move(batch), .bytes = {}};
}

TEST_P(GiveBack, TheNextReceiveOfAnyKindGetsTheMessage) {
  PipePair pair = connect();
  for (std::int64_t n = 1; n <= 4; ++n)
    ASSERT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.finish_sending(kPatience)));
  pair.server.give_back(of_tensors(pair.server.recv(kPatience).value()));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 1);
  pair.server.give_back(pair.server.recv_message(kPatience).value());
  EXPECT_EQ(number_of(*pair.server.recv_message(kPatience).value().tensors), 2);
  pair.server.give_back(of_tensors(pair.server.recv(kPatience).value()));
  EXPECT_EQ(number_of(pair.server.recv_async().wait(kPatience).value()), 3);
  // A last message is received again, although the end of the stream was seen before its return.
  TensorDict last = pair.server.recv(kPatience).value();
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
  pair.server.give_back(of_tensors(std::move(last)));
  TensorDict mine = numbered(0);
  ASSERT_TRUE(succeeds(pair.server.recv_into(mine, kPatience)));
  EXPECT_EQ(number_of(mine), 4);
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(GiveBack, RawBytesStayRawBytes) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(
      pair.client.send(as_bytes("body"), {.tag = 7, .header = as_bytes("head")}, kPatience)));
  pair.server.give_back(pair.server.recv_message(kPatience).value());
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::wrong_kind));
  const Message message = pair.server.recv_message(kPatience).value();
  EXPECT_EQ(message.tag, 7U);
  EXPECT_EQ(as_text(message.header.bytes()), "head");
  EXPECT_EQ(as_text(message.bytes.bytes()), "body");
}

TEST_P(GiveBack, AReceiveIntoLeavesACopyWithTheValuesOfTheMessageAlone) {
  PipePair pair = connect();
  TensorDict sent = patterned(1, 3000);
  sent.set("said", "by the peer");
  ASSERT_TRUE(succeeds(pair.client.send(sent, kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(2), kPatience)));
  TensorDict mine = patterned(0, 3000);
  mine.set("own", 1);
  ASSERT_TRUE(succeeds(pair.server.recv_into(mine, kPatience)));
  ASSERT_TRUE(succeeds(pair.server.give_back_from(mine)));
  Tensor written = mine.find("x").value();
  fill_pattern(written.mutable_bytes(), 7);
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(is_patterned(*received, 1, 3000));
  EXPECT_EQ(received->find_value("said").value(), Value("by the peer"));
  EXPECT_FALSE(received->contains("own"));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
}

TEST_P(GiveBack, ThereIsNothingToGiveBackTwice) {
  PipePair pair = connect();
  TensorDict mine = numbered(0);
  EXPECT_TRUE(fails_with(pair.server.give_back_from(mine), ErrorCode::invalid_argument));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv_into(mine, kPatience)));
  ASSERT_TRUE(succeeds(pair.server.give_back_from(mine)));
  EXPECT_TRUE(fails_with(pair.server.give_back_from(mine), ErrorCode::invalid_argument));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 1);
  EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
}

TEST_P(GiveBack, AnAcceptedPipeIsTheNextOneAgain) {
  PipePair pair = connect();
  Pipe first = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  pair.listener.give_back(pair.listener.accept(kPatience).value());
  Pipe second = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  ASSERT_TRUE(succeeds(first.send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(second.send(numbered(2), kPatience)));
  for (std::int64_t n = 1; n <= 2; ++n) {
    Pipe accepted = pair.listener.accept(kPatience).value();
    EXPECT_EQ(number_of(accepted.recv(kPatience).value()), n);
  }
}

}  // namespace
}  // namespace tendon::test
