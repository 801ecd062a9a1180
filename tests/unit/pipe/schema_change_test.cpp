// SPDX-License-Identifier: Apache-2.0
// A schema is announced once, then data; another schema may follow at any time.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class SchemaChange : public PipeTest {};
TENDON_ON_EVERY_WAY(SchemaChange);

TEST_P(SchemaChange, AStableSchemaIsAnnouncedOnce) {
  PipePair pair = connect();
  for (std::int64_t n = 0; n < 50; ++n) {
    ASSERT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));  // a new dict each time
    ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), n);
  }
  EXPECT_EQ(pair.client.stats().schemas_announced, 1u);
}

TEST_P(SchemaChange, LoansAndSendsShareTheAnnouncement) {
  PipePair pair = connect();
  const auto schema = bytes_schema(20'000);
  for (std::uint64_t n = 0; n < 6; ++n) {
    if (n % 2 == 0) {
      Loan loan = pair.client.loan(schema, kPatience).value();
      fill_pattern(loan["x"].mutable_bytes(), n);
      ASSERT_TRUE(succeeds(pair.client.send(std::move(loan), kPatience)));
    } else {
      ASSERT_TRUE(succeeds(pair.client.send(patterned(n, 20'000), kPatience)));
    }
    ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), n, 20'000));
  }
  EXPECT_EQ(pair.client.stats().schemas_announced, 1u);
}

TEST_P(SchemaChange, MoreSchemasThanAnyCacheHoldsInAnyOrder) {
  PipePair pair = connect();
  constexpr std::uint64_t kSchemas = 100;
  for (std::uint64_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < kSchemas; ++i) {
      const std::uint64_t size = 1 + (i * 37) % kSchemas;
      ASSERT_TRUE(succeeds(pair.client.send(patterned(round, size), kPatience)));
      ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), round, size));
    }
  }
  EXPECT_GE(pair.client.stats().schemas_announced, kSchemas);
}

TEST_P(SchemaChange, TwoSchemasThatAlternateWhileManyMessagesAreUnread) {
  PipePair pair = connect();
  for (std::uint64_t n = 0; n < 90; ++n)
    ASSERT_TRUE(succeeds(pair.client.send(patterned(n, 10 + n % 2 * 9000), kPatience)));
  for (std::uint64_t n = 0; n < 90; ++n)
    ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), n, 10 + n % 2 * 9000));
}

TEST_P(SchemaChange, ASchemaAboveOneInlineMessage) {
  PipePair pair = connect();
  TensorDict wide;
  for (int i = 0; i < 5000; ++i)
    wide.set("a name that takes some room in the encoding " + std::to_string(i),
             Tensor::of<std::int32_t>({}, {i}));
  ASSERT_GT(wide.schema()->encoding().size(), 8192u);
  ASSERT_TRUE(succeeds(pair.client.send(wide, kPatience)));
  EXPECT_TRUE(bitwise_equal(pair.server.recv(kPatience).value(), wide));
  ASSERT_TRUE(succeeds(pair.client.send(wide, kPatience)));
  EXPECT_TRUE(bitwise_equal(pair.server.recv(kPatience).value(), wide));
  EXPECT_EQ(pair.client.stats().schemas_announced, 1u);
}

TEST_P(SchemaChange, EachDirectionAndEachPipeHasItsOwn) {
  PipePair pair = connect();
  auto [client2, server2] = another_pipe(pair);
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 10), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.send(patterned(2, 20), kPatience)));
  ASSERT_TRUE(succeeds(client2.send(patterned(3, 30), kPatience)));
  ASSERT_TRUE(succeeds(server2.send(patterned(4, 40), kPatience)));
  EXPECT_TRUE(is_patterned(server2.recv(kPatience).value(), 3, 30));
  EXPECT_TRUE(is_patterned(client2.recv(kPatience).value(), 4, 40));
  EXPECT_TRUE(is_patterned(pair.client.recv(kPatience).value(), 2, 20));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, 10));
}

// Sends as much as it can without waiting, like a control loop, to a peer that takes nothing
// meanwhile.
void poll_with_ever_new_shapes(Pipe& from, Pipe& to, std::uint64_t size_bytes) {
  constexpr std::uint64_t kShapes = 256;
  constexpr std::uint64_t kRounds = 10'000;
  std::vector<TensorDict> batches;
  for (std::uint64_t i = 0; i < kShapes; ++i) batches.push_back(patterned(i, size_bytes + i));
  std::vector<std::uint64_t> sent;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t shape = round % kShapes;
    if (const auto now = from.send(batches[shape], Deadline(0ns)); now) {
      sent.push_back(shape);
    } else {
      ASSERT_TRUE(now.error().code == ErrorCode::timeout ||
                  now.error().code == ErrorCode::resource_exhausted)
          << "in round " << round << ": " << now.error().message();
    }
  }
  EXPECT_LT(sent.size(), kRounds);
  std::jthread last(
      [&] { EXPECT_TRUE(succeeds(from.send(patterned(9, size_bytes + kShapes), kPatience))); });
  for (std::size_t i = 0; i < sent.size(); ++i) {
    auto received = to.recv(kPatience);
    ASSERT_TRUE(succeeds(received)) << "message " << i;
    EXPECT_TRUE(is_patterned(*received, sent[i], size_bytes + sent[i])) << "message " << i;
  }
  auto received = to.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(is_patterned(*received, 9, size_bytes + kShapes));
}

TEST_P(SchemaChange, APolledSenderOfSmallMessagesAnnouncesOnlyWhatCanFollow) {
  PipePair pair = connect();
  poll_with_ever_new_shapes(pair.client, pair.server, 1);
}

TEST_P(SchemaChange, APolledSenderOfLargeMessagesAnnouncesOnlyWhatCanFollow) {
  const ContextOptions options{.link_cap_bytes = 4 << 20, .pool_cap_bytes = 4 << 20};
  PipePair pair = connect(options, options);
  poll_with_ever_new_shapes(pair.client, pair.server, 300'000);
}

// Its receiver reads nothing from the connections meanwhile, so that messages stop halfway.
TEST(SchemaChangeStuck, APolledSenderOfLargeMessagesAnnouncesOnlyWhatCanFollow) {
  PipePair pair = connect_pair(kTcpManual);
  poll_with_ever_new_shapes(pair.server, pair.client, 200'000);
}

}  // namespace
}  // namespace tendon::test
