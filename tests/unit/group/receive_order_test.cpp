// SPDX-License-Identifier: Apache-2.0
// Receives of a group take messages in the order of their calls.
#include <gtest/gtest.h>

#include <vector>

#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/group_members.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kSize = 64;
constexpr From kAny{};

class ReceiveOrder : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Paths, ReceiveOrder, testing::Values(Transport::automatic, Transport::tcp),
                         path_name);

// The waiting call takes in the messages itself, before any thread looks after the other call.
TEST_P(ReceiveOrder, ACallThatWaitsTakesNoMessageOfAReceiveBeforeIt) {
  run_members(2,
              [](Context&, Group& group) {
                if (group.rank() == GroupRank{0}) {
                  ASSERT_TRUE(succeeds(group.barrier(30s)));
                  for (std::uint32_t n = 0; n < 2; ++n)
                    ASSERT_TRUE(succeeds(group.send(patterned(n, kSize), {GroupRank{1}, n}, 30s)));
                } else {
                  TensorDict before = patterned(100, kSize);
                  TensorDict after = patterned(100, kSize);
                  auto posted = group.recv_async(before, kAny);
                  ASSERT_TRUE(succeeds(group.barrier(30s)));
                  const auto received = group.recv(after, kAny, 30s);
                  ASSERT_TRUE(succeeds(received));
                  EXPECT_EQ(received->tag, 1u);
                  EXPECT_TRUE(is_patterned(after, 1, kSize));
                  ASSERT_TRUE(succeeds(posted.wait(30s)));
                  EXPECT_TRUE(is_patterned(before, 0, kSize));
                }
                ASSERT_TRUE(succeeds(group.barrier(30s)));
              },
              {.progress = Progress::manual, .transport = GetParam()});
}

TEST_P(ReceiveOrder, AReceiveThatIsCancelledHoldsNobodyUp) {
  run_members(2,
              [](Context&, Group& group) {
                if (group.rank() == GroupRank{0}) {
                  ASSERT_TRUE(succeeds(group.barrier(30s)));
                  ASSERT_TRUE(succeeds(group.send(patterned(7, kSize), {GroupRank{1}, 7}, 30s)));
                } else {
                  TensorDict before = patterned(100, kSize);
                  TensorDict after = patterned(100, kSize);
                  auto posted = group.recv_async(before, kAny);
                  auto next = group.recv_async(after, kAny);
                  posted.cancel();
                  ASSERT_TRUE(succeeds(group.barrier(30s)));
                  ASSERT_TRUE(succeeds(next.wait(30s)));
                  EXPECT_TRUE(is_patterned(after, 7, kSize));
                  EXPECT_EQ(posted.wait(30s).error().code, ErrorCode::cancelled);
                }
                ASSERT_TRUE(succeeds(group.barrier(30s)));
              },
              {.progress = Progress::manual, .transport = GetParam()});
}

}  // namespace
}  // namespace tendon::test
