// SPDX-License-Identifier: Apache-2.0
// Members leave as soon as they have their results, while others still finish their calls.
#include <future>

#include "support/group_members.hpp"
#include "support/map_store.hpp"

namespace tendon {
namespace {

using namespace std::chrono_literals;

class GroupLeaving : public testing::TestWithParam<Transport> {};

// The right moment is rare; each try has two members that end as fast as they can.
TEST_P(GroupLeaving, WhoTookAMessageAndLeftDidNotLoseIt) {
  constexpr int kTries = 20;
  constexpr std::int64_t kElements = 4'000'000;
  for (int i = 0; i < kTries; ++i) {
    test::run_members(3,
                      [](Context&, Group& group) {
                        const auto all_here = group.barrier(20s);
                        ASSERT_TRUE(all_here) << all_here.error().message();
                        const Tensor tensor = Tensor::zeros(DType::f32, Shape({kElements})).value();
                        if (group.rank().value == 1) {
                          const auto sent = group.send(tensor, {.rank = GroupRank{0}}, 20s);
                          EXPECT_TRUE(sent) << sent.error().message();
                        } else if (group.rank().value == 0) {
                          const auto received = group.recv(tensor, {.rank = GroupRank{1}}, 20s);
                          EXPECT_TRUE(received) << received.error().message();
                        }
                      },
                      {.transport = GetParam()});
  }
}

// A member that is done fails at the next call and says so, while another is slower. The slower one
// has all it needs for the call before.
TEST_P(GroupLeaving, AFailureDoesNotReachWhatCameBeforeIt) {
  std::promise<void> failed;
  auto has_failed = failed.get_future().share();
  test::run_members(3,
                    [&](Context&, Group& group) {
                      const Tensor tensor = Tensor::zeros(DType::i32, Shape({1000})).value();
                      const std::uint32_t rank = group.rank().value;
                      if (rank == 0) tensor.span<std::int32_t>().back() = 7;
                      if (rank == 2) has_failed.wait();
                      const auto done = group.broadcast(tensor, GroupRank{0}, 20s);
                      ASSERT_TRUE(done) << done.error().message();
                      EXPECT_EQ(tensor.span<std::int32_t>().back(), 7);
                      if (rank == 0) return;
                      const auto lost = group.barrier(20s);
                      ASSERT_FALSE(lost);
                      EXPECT_EQ(lost.error().code, ErrorCode::peer_lost) << lost.error().message();
                      if (rank == 1) failed.set_value();
                      EXPECT_EQ(group.last_complete_sequence(), 1u);
                    },
                    {.transport = GetParam()});
}

// The member that is first in the group may end it before the others know that it is complete.
TEST_P(GroupLeaving, AGroupIsWholeThoughAMemberHasLeftItAtOnce) {
  constexpr int kTries = 50;
  for (int i = 0; i < kTries; ++i) {
    test::run_members(3,
                      [](Context&, Group& group) {
                        EXPECT_EQ(group.size(), 3u);
                        if (group.rank().value == 2) return;
                        const auto failed = group.barrier(20s);
                        ASSERT_FALSE(failed);
                        EXPECT_EQ(failed.error().code, ErrorCode::peer_lost)
                            << failed.error().message();
                      },
                      {.transport = GetParam()});
  }
}

// Between hosts the kernel of a member that has left holds most of the data that it sent. It would
// drop the data at the first word of the other member to a closed socket.
TEST(GroupLeaving, WhatTheKernelHoldsArrivesThoughItsSenderHasLeft) {
  constexpr std::int64_t kElements = 1'000'000;
  const auto store = std::make_shared<test::MapStore>();
  std::promise<void> sent;
  const auto join = [&](std::uint32_t rank, Progress progress, const auto& body) {
    auto context = Context::create({.name = "member " + std::to_string(rank),
                                    .progress = progress,
                                    .transport = Transport::tcp,
                                    .linger = 20s});
    ASSERT_TRUE(context) << context.error().message();
    auto group = Group::join(*context, Rendezvous::through(store, GroupRank{rank}, 2), 20s);
    ASSERT_TRUE(group) << group.error().message();
    body(*context, *group);
  };
  std::thread sender([&] {
    join(0, Progress::service, [&](Context&, Group& group) {
      const Tensor tensor = Tensor::zeros(DType::i32, Shape({kElements})).value();
      for (std::int32_t& element : tensor.span<std::int32_t>()) element = 7;
      const auto done = group.broadcast(tensor, GroupRank{0}, 20s);
      EXPECT_TRUE(done) << done.error().message();
      sent.set_value();
    });
  });
  join(1, Progress::manual, [&](Context& context, Group& group) {
    auto all_sent = sent.get_future();
    while (all_sent.wait_for(0s) != std::future_status::ready) context.progress();
    // The receiver may have left: only the answer of the kernel matters.
    (void)group.send(Tensor::zeros(DType::u8, Shape({1})).value(), {.rank = GroupRank{0}}, 20s);
    const Tensor tensor = Tensor::zeros(DType::i32, Shape({kElements})).value();
    const auto done = group.broadcast(tensor, GroupRank{0}, 20s);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ(tensor.span<std::int32_t>().back(), 7);
  });
  sender.join();
}

INSTANTIATE_TEST_SUITE_P(Paths, GroupLeaving, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

}  // namespace
}  // namespace tendon
