// SPDX-License-Identifier: Apache-2.0
// The next receive of a group gets a message that give_back() has returned.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/group_members.hpp"

namespace tendon::test {
namespace {

constexpr std::uint32_t kMessages = 4;
constexpr std::uint64_t kSize = 20'000;

// Two leaves, so that there is padding between them.
TensorDict two(std::uint64_t seed) {
  TensorDict batch = patterned(seed, kSize + 1);
  batch.set("y", Tensor::of<std::uint64_t>({1}, {seed}));
  return batch;
}

void receive_and_give_back(Group& group) {
  std::vector<TensorDict> places;
  std::vector<Completion<Received>> matched;
  for (std::uint32_t n = 0; n < kMessages; ++n) {
    places.push_back(two(100));
    matched.push_back(group.recv_async(places.back(), {.rank = GroupRank{0}, .tag = {}}));
  }
  for (const auto& each : matched) ASSERT_TRUE(eventually([&] { return each.done(); }));
  for (const std::uint32_t n : {2, 0, 3, 1}) {
    EXPECT_TRUE(is_patterned(places[n], n, kSize + 1));
    std::move(matched[n]).give_back();
    Tensor x = places[n].find("x").value();
    fill_pattern(x.mutable_bytes(), 200);
  }
  for (std::uint32_t n = 0; n < kMessages; ++n) {
    TensorDict place = two(100);
    const auto received = group.recv(place, {.rank = GroupRank{0}, .tag = {}}, 30s);
    ASSERT_TRUE(succeeds(received));
    EXPECT_EQ(received->tag, n);
    EXPECT_TRUE(is_patterned(place, n, kSize + 1));
    EXPECT_EQ(place["y"].span<std::uint64_t>()[0], n);
  }
}

class GroupGiveBack : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Paths, GroupGiveBack,
                         testing::Values(Transport::automatic, Transport::tcp), path_name);

TEST_P(GroupGiveBack, LeavesTheMessagesToTheNextReceivesInOrder) {
  run_members(2,
              [](Context&, Group& group) {
                if (group.rank() == GroupRank{0}) {
                  for (std::uint32_t n = 0; n < kMessages; ++n)
                    ASSERT_TRUE(succeeds(group.send(two(n), {GroupRank{1}, n}, 30s)));
                } else {
                  receive_and_give_back(group);
                }
                ASSERT_TRUE(succeeds(group.barrier(30s)));
              },
              {.transport = GetParam()});
}

void receive_and_give_back_at_once(Group& group) {
  TensorDict place = two(100);
  const auto first = group.recv(place, {.rank = GroupRank{0}, .tag = {}}, 30s);
  ASSERT_TRUE(succeeds(first));
  EXPECT_EQ(first->place, 0U);
  ASSERT_TRUE(succeeds(group.give_back(place, *first)));
  Tensor x = place.find("x").value();
  fill_pattern(x.mutable_bytes(), 200);
  // Each message is in its old position: before the later ones.
  for (std::uint32_t n = 0; n < 2; ++n) {
    const auto again = group.recv(place, {.rank = GroupRank{0}, .tag = {}}, 30s);
    ASSERT_TRUE(succeeds(again));
    EXPECT_EQ(again->tag, n);
    EXPECT_TRUE(is_patterned(place, n, kSize + 1));
  }
  Received received;
  const auto dict = group.from_remote_init({.rank = GroupRank{0}, .tag = {}}, 30s, &received);
  ASSERT_TRUE(succeeds(dict));
  ASSERT_TRUE(succeeds(group.give_back_init(*dict, received)));
  EXPECT_TRUE(
      fails_with(group.recv(place, {.rank = GroupRank{0}, .tag = {}}, 0s), ErrorCode::wrong_kind));
  const auto whole = group.from_remote_init({.rank = GroupRank{0}, .tag = 9}, 30s);
  ASSERT_TRUE(succeeds(whole));
  EXPECT_TRUE(is_patterned(*whole, 5, kSize + 1));
  EXPECT_EQ(whole->find_value("said").value(), Value("by rank 0"));
  EXPECT_TRUE(fails_with(group.give_back(place, {}), ErrorCode::invalid_argument));
}

TEST_P(GroupGiveBack, OfABlockingReceiveIsACopyOfTheMessage) {
  run_members(2,
              [](Context&, Group& group) {
                if (group.rank() == GroupRank{0}) {
                  for (std::uint32_t n = 0; n < 2; ++n)
                    ASSERT_TRUE(succeeds(group.send(two(n), {GroupRank{1}, n}, 30s)));
                  TensorDict whole = two(5);
                  whole.set("said", "by rank 0");
                  ASSERT_TRUE(succeeds(group.init_remote(whole, {GroupRank{1}, 9}, 30s)));
                } else {
                  receive_and_give_back_at_once(group);
                }
                ASSERT_TRUE(succeeds(group.barrier(30s)));
              },
              {.transport = GetParam()});
}

}  // namespace
}  // namespace tendon::test
