// SPDX-License-Identifier: Apache-2.0
// The view of a thread that watches a group, while another thread waits in a collective.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <tendon/group/group_status.hpp>
#include <thread>

#include "support/group_members.hpp"

namespace tendon {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

class StatusOverPaths : public testing::TestWithParam<Transport> {};

TEST_P(StatusOverPaths, NamesTheMemberThatDoesNotCome) {
  std::atomic<int> seen{0};
  const auto body = [&](Context&, Group& group) {
    ASSERT_TRUE(group.barrier(30s));
    EXPECT_EQ(group.status().state, GroupStatus::State::idle);
    if (group.rank().value == 2) {
      EXPECT_TRUE(test::eventually([&] { return seen == 2; }));
      EXPECT_TRUE(group.barrier(30s));
      return;
    }
    std::thread watchdog([&] {
      GroupStatus status;
      EXPECT_TRUE(test::eventually([&] {
        status = group.status();
        return status.waiting_for == std::vector{GroupRank{2}} && status.elapsed > 0ns;
      })) << to_string(status);
      EXPECT_EQ(status.group, "watched");
      EXPECT_EQ(status.epoch, 1u);
      EXPECT_EQ(status.size, 3u);
      EXPECT_EQ(status.state, GroupStatus::State::in_operation);
      EXPECT_EQ(status.operation, "barrier");
      EXPECT_EQ(status.sequence, 2u);
      EXPECT_THAT(to_string(status), StartsWith("in barrier #2, waiting for rank 2 ("));
      ++seen;
    });
    EXPECT_TRUE(group.barrier(30s));
    watchdog.join();
    EXPECT_EQ(to_string(group.status()), "idle");
  };
  test::run_members(3, body, {.transport = GetParam(), .group = {.name = "watched"}});
}

TEST_P(StatusOverPaths, NamesTheMemberWhoseMessageDoesNotCome) {
  std::atomic<int> seen{0};
  const auto body = [&](Context&, Group& group) {
    const Tensor number = Tensor::of<float>({1}, {1});
    if (group.rank().value == 0) {
      EXPECT_TRUE(test::eventually([&] { return seen == 2; }));
      for (const std::uint32_t rank : {1U, 2U})
        EXPECT_TRUE(group.send(number, {.rank = GroupRank{rank}}, 30s));
      return;
    }
    std::thread watchdog([&] {
      GroupStatus status;
      EXPECT_TRUE(test::eventually([&] {
        status = group.status();
        return status.state == GroupStatus::State::in_operation;
      }));
      EXPECT_EQ(status.operation, "recv");
      EXPECT_EQ(status.sequence, 0u);
      EXPECT_EQ(status.waiting_for, std::vector{GroupRank{0}});
      EXPECT_THAT(to_string(status), StartsWith("in recv, waiting for rank 0 ("));
      ++seen;
    });
    if (group.rank().value == 1)
      EXPECT_TRUE(group.recv(number, {.rank = GroupRank{0}}, 30s));
    else
      EXPECT_TRUE(group.recv_async(number, {.rank = GroupRank{0}}).wait(30s));
    watchdog.join();
    EXPECT_EQ(to_string(group.status()), "idle");
  };
  test::run_members(3, body, {.transport = GetParam(), .group = {.name = "watched"}});
}

INSTANTIATE_TEST_SUITE_P(Paths, StatusOverPaths,
                         testing::Values(Transport::automatic, Transport::tcp));

TEST(GroupStatus, TellsThatTheEpochHasEndedUntilTheNextOne) {
  test::run_members(1, [](Context&, Group& group) {
    group.abort("enough");
    EXPECT_EQ(group.status().state, GroupStatus::State::ended);
    EXPECT_EQ(to_string(group.status()), "its epoch has ended");
    ASSERT_TRUE(group.shrink(30s));
    EXPECT_EQ(group.status().state, GroupStatus::State::idle);
    EXPECT_EQ(group.status().epoch, 2u);
  });
}

TEST(GroupStatus, IsOneLineOfText) {
  GroupStatus status;
  status.state = GroupStatus::State::in_operation;
  status.operation = "all_reduce";
  status.sequence = 7;
  EXPECT_EQ(to_string(status), "in all_reduce #7 (0.0 s)");
  status.waiting_for = {GroupRank{2}, GroupRank{5}};
  status.elapsed = 12'345ms;
  EXPECT_EQ(to_string(status), "in all_reduce #7, waiting for rank 2, rank 5 (12.3 s)");
}

}  // namespace
}  // namespace tendon
