// SPDX-License-Identifier: Apache-2.0
// docs/errors/TD-E0007.md: handles of a Context that was closed return `context_closed`.
#include <gtest/gtest.h>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class ContextClosed : public PipeTest {};
TENDON_ON_EVERY_WAY(ContextClosed);

TEST_P(ContextClosed, EveryCallOfEveryHandleSaysSo) {
  PipePair pair = connect();
  const TensorDict before = [&] {
    EXPECT_TRUE(succeeds(pair.server.send(patterned(1, 50'000), kPatience)));
    return pair.client.recv(kPatience).value();
  }();
  Loan loan = pair.client.loan(bytes_schema(20'000), kPatience).value();
  Listener listener = Listener::bind(pair.client_context, "127.0.0.1:0").value();
  ASSERT_TRUE(succeeds(pair.client_context.close(kPatience)));

  const auto closed = ErrorCode::context_closed;
  EXPECT_TRUE(fails_with(pair.client.send(numbered(1), kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.send(std::move(loan), kPatience), closed));
  EXPECT_FALSE(loan.empty());
  EXPECT_TRUE(fails_with(pair.client.send(as_bytes("x"), {}, kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.send_async(numbered(1)).wait(kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.loan(bytes_schema(20'000), kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.recv_message(kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.recv_async().wait(kPatience), closed));
  TensorDict into = numbered(0);
  EXPECT_TRUE(fails_with(pair.client.recv_into(into, kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.flush(kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.close(kPatience), closed));
  EXPECT_TRUE(fails_with(pair.client.finish_sending(kPatience), closed));
  EXPECT_TRUE(fails_with(listener.accept(kPatience), closed));
  EXPECT_TRUE(fails_with(listener.accept_async().wait(kPatience), closed));
  EXPECT_TRUE(fails_with(Listener::bind(pair.client_context, "127.0.0.1:0"), closed));
  EXPECT_TRUE(
      fails_with(Pipe::connect(pair.client_context, pair.listener.address(), kPatience), closed));
  pair.client.cancel();
  (void)pair.client.path();
  (void)pair.client.peer();
  (void)pair.client.stats();
  (void)pair.client_context.describe();
  EXPECT_TRUE(pair.client_context.members().empty());
  EXPECT_FALSE(pair.client_context.progress());
  EXPECT_TRUE(is_patterned(before, 1, 50'000)) << "what was received stays";
  fill_pattern(loan["x"].mutable_bytes(), 5);

  // The peer sees an orderly end.
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(ContextClosed, PendingOperationsEnd) {
  PipePair pair = connect();
  Listener listener = Listener::bind(pair.client_context, "127.0.0.1:0").value();
  Completion<TensorDict> received = pair.client.recv_async();
  Completion<Pipe> accepted = listener.accept_async();
  ASSERT_TRUE(succeeds(pair.client_context.close(kPatience)));
  EXPECT_TRUE(fails_with(received.wait(kPatience), ErrorCode::context_closed));
  EXPECT_TRUE(fails_with(accepted.wait(kPatience), ErrorCode::context_closed));
}

TEST_P(ContextClosed, ClosingTwiceIsHarmless) {
  PipePair pair = connect();
  EXPECT_TRUE(succeeds(pair.client_context.close(kPatience)));
  (void)pair.client_context.close(kPatience);
  EXPECT_TRUE(fails_with(pair.client.recv(0s), ErrorCode::context_closed));
}

}  // namespace
}  // namespace tendon::test
