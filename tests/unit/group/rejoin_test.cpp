// SPDX-License-Identifier: Apache-2.0
// Groups one after another at one rendezvous: an early process meets the previous group.
#include <gmock/gmock.h>

#include <future>

#include "support/group_cores.hpp"

namespace tendon {
namespace {

using namespace std::chrono_literals;
using detail::GroupCore;
using detail::MemberChannel;
using detail::Mesh;

constexpr auto kSoon = 30s;

class Rejoin : public testing::TestWithParam<Transport> {
 protected:
  static constexpr std::uint32_t kSize = 3;

  // Each moment of the end of a group is rare.
  void run(int groups, const std::function<Context(std::uint32_t rank)>& context_of,
           bool one_context) const {
    const std::string address = test::fresh_group_address();
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] {
        Context context = context_of(rank);
        for (int i = 0; i < groups; ++i) {
          if (!one_context) context = context_of(rank);
          const auto group =
              Group::join(context, Rendezvous::at(address, GroupRank{rank}, kSize), kSoon);
          ASSERT_TRUE(group) << i << ", rank " << rank << ": " << group.error().message();
          ASSERT_EQ(group->size(), kSize);
          ASSERT_EQ(group->epoch(), 1u);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static std::future<Result<Group>> join(Context& context, const std::string& address,
                                         std::uint32_t rank) {
    return std::async(std::launch::async, [&context, address, rank] {
      return Group::join(context, Rendezvous::at(address, GroupRank{rank}, kSize), kSoon);
    });
  }
  static std::vector<std::optional<Group>> join_all(std::vector<Context>& members,
                                                    const std::string& address) {
    std::vector<std::future<Result<Group>>> joining;
    for (std::uint32_t rank = 0; rank < kSize; ++rank)
      joining.push_back(join(members[rank], address, rank));
    std::vector<std::optional<Group>> groups;
    for (auto& each : joining) groups.emplace_back(each.get().value());
    return groups;
  }
  [[nodiscard]] std::function<Context(std::uint32_t)> contexts() const {
    return [transport = GetParam()](std::uint32_t rank) {
      return Context::create({.name = "member " + std::to_string(rank),
                              .transport = transport,
                              .lease = test::kLongLease})
          .value();
    };
  }
};

TEST_P(Rejoin, WithTheSameContexts) { run(100, contexts(), true); }
TEST_P(Rejoin, WithOtherContexts) { run(50, contexts(), false); }

// A link has a limit of pipes: each group must release its own, whichever member leaves first.
TEST_P(Rejoin, LeavesNoPipeBehind) {
  const std::string address = test::fresh_group_address();
  std::vector<Context> members;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) members.push_back(contexts()(rank));
  for (const std::uint32_t first : {0u, 1u}) {
    auto groups = join_all(members, address);
    groups[first].reset();
    const std::uint32_t last = 1 - first;
    // The last member learns about the end before it leaves.
    const auto tensor = Tensor::empty(DType::u8, Shape({8})).value();
    EXPECT_TRUE(test::fails_with(groups[last]->recv(tensor, {GroupRank{first}, {}}, kSoon),
                                 ErrorCode::peer_lost));
    groups.clear();
    for (Context& member : members) {
      const auto links = detail::ContextCore::of(member)->links().all();
      for (const auto& link : *links) {
        const auto count = [&] {
          std::lock_guard receiving(link->receive_mutex());
          return link->pipe_count();
        };
        EXPECT_TRUE(test::eventually([&] { return count() == 0; }))
            << count() << " pipes of " << link->peer_name() << ", rank " << first << " left first";
      }
    }
  }
}

// Messages without a receiver would keep the channel and the place of a member that has left for
// ever.
TEST_P(Rejoin, AfterMessagesThatNobodyTakes) {
  const std::string address = test::fresh_group_address();
  std::vector<Context> members;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) members.push_back(contexts()(rank));
  auto groups = join_all(members, address);
  const auto window = Tensor::empty(DType::u8, Shape({65 << 20})).value();
  auto sent = groups[1]->send_async(window, {GroupRank{0}, 1});
  auto held = groups[1]->send_async(window, {GroupRank{0}, 2});
  EXPECT_TRUE(sent.wait(kSoon));
  groups[1].reset();
  EXPECT_TRUE(test::fails_with(held.wait(kSoon), ErrorCode::group_aborted));
  auto again = join(members[1], address, 1);
  auto other = std::async(std::launch::async, [&] { return groups[2]->rebuild(kSoon); });
  const auto rebuilt = groups[0]->rebuild(kSoon);
  EXPECT_TRUE(rebuilt) << rebuilt.error().message();
  EXPECT_TRUE(other.get());
  EXPECT_TRUE(again.get());
}

// The member was refused at first, and has been admitted since: the refusal is not the reason for
// the missing group.
TEST_P(Rejoin, WhoIsLetInWhenItsFirstTryEndsHearsWhoIsMissing) {
  const std::string address = test::fresh_group_address();
  Context zero = contexts()(0);
  Context one = contexts()(1);
  const auto host =
      Mesh::create(detail::ContextCore::of(zero), Rendezvous::at(address, GroupRank{0}, kSize), {})
          .value();
  auto hosted = std::async(std::launch::async, [&] { return host->meet(3s); });
  const auto try_for = [&](std::chrono::milliseconds patience) {
    return Group::join(one, Rendezvous::at(address, GroupRank{1}, kSize), patience);
  };
  auto first = std::async(std::launch::async, [&] { return try_for(500ms); });
  ASSERT_TRUE(test::eventually([&] { return host->channel({1}) != nullptr; }));
  EXPECT_TRUE(test::fails_with(try_for(2s), ErrorCode::timeout, "still waits for other members"));
  EXPECT_TRUE(test::fails_with(first.get(), ErrorCode::timeout));
  const auto given_up = hosted.get();
  ASSERT_TRUE(test::fails_with(given_up, ErrorCode::timeout, "rank 2"));
  EXPECT_THAT(given_up.error().detail, testing::Not(testing::HasSubstr("refused")));
  host->end();
}

/// Members whose places and channels a test can see.
class Seats : public Rejoin {
 protected:
  using Core = std::shared_ptr<GroupCore>;
  using Joining = std::future<Result<Core>>;

  void SetUp() override {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) members_.push_back(contexts()(rank));
    std::vector<Joining> joining;
    for (std::uint32_t rank = 0; rank < kSize; ++rank) joining.push_back(join(rank));
    for (Joining& each : joining) cores_.push_back(take(each));
    ASSERT_THAT(cores_, testing::Each(testing::NotNull()));
  }
  void TearDown() override {
    for (Core& core : cores_)
      if (core != nullptr) core->leave();
  }
  Joining join(std::uint32_t rank) {
    return std::async(std::launch::async, [this, rank] {
      return GroupCore::join(detail::ContextCore::of(members_[rank]),
                             Rendezvous::at(address_, GroupRank{rank}, kSize), {}, kSoon);
    });
  }
  Core take(Joining& joining) {
    auto core = joining.get();
    EXPECT_TRUE(core) << core.error().message();
    return core ? *core : nullptr;
  }
  void leave(std::uint32_t rank) {
    cores_[rank]->leave();
    cores_[rank].reset();
  }
  struct Meeting {
    std::shared_ptr<Mesh> mesh;
    std::future<Result<void>> done;
  };
  // Joins without the group: only the mesh.
  Meeting meet(std::uint32_t rank) {
    auto mesh = Mesh::create(detail::ContextCore::of(members_[rank]),
                             Rendezvous::at(address_, GroupRank{rank}, kSize), {})
                    .value();
    return {mesh, std::async(std::launch::async, [mesh] { return mesh->meet(kSoon); })};
  }
  // Leaves and joins again; returns when it has its place with each of the others.
  Joining come_again(std::uint32_t rank, const std::vector<std::uint32_t>& others) {
    std::vector<std::shared_ptr<MemberChannel>> before;
    for (const std::uint32_t other : others)
      before.push_back(cores_[other]->mesh()->channel({rank}));
    leave(rank);
    Joining joining = join(rank);
    for (std::size_t i = 0; i < others.size(); ++i) {
      EXPECT_TRUE(test::eventually(
          [&] { return cores_[others[i]]->mesh()->channel({rank}) != before[i]; }));
    }
    return joining;
  }

  const std::string address_ = test::fresh_group_address();
  std::vector<Context> members_;
  std::vector<Core> cores_;
};

// Two members rejoin early, one after the other, and take their old places.
TEST_P(Seats, WhoIsSeatedInTheGroupOfBeforeBeginsAgain) {
  const std::uint64_t id = cores_[0]->id();
  Joining one = come_again(1, {0, 2});
  Joining two = come_again(2, {0});
  leave(0);
  Joining zero = join(0);
  cores_ = {take(zero), take(one), take(two)};
  ASSERT_THAT(cores_, testing::Each(testing::NotNull()));
  for (const Core& core : cores_) {
    EXPECT_NE(core->id(), id);
    EXPECT_EQ(core->id(), cores_[0]->id());
    EXPECT_EQ(core->epoch()->size(), kSize);
    EXPECT_FALSE(core->mesh()->replacement());
  }
}

// The others look for it in rebuild(). A member that waits to be admitted has called only join().
TEST_P(Seats, ANewcomerFindsARankZeroThatCameAfterIt) {
  const std::uint64_t id = cores_[0]->id();
  for (const bool early : {false, true}) {
    Joining one = come_again(1, {0, 2});
    const auto newcomer = cores_[2]->mesh()->channel({1});
    leave(0);
    Joining zero = join(0);
    // The newcomer begins again at the new rank 0, unless it was admitted before.
    if (early) {
      ASSERT_TRUE(test::eventually([&] { return newcomer->lost(); }));
    }
    const auto rebuilt =
        cores_[2]->enter(kSoon, GroupCore::Of::every_place, Fence::none, "group.rebuild");
    ASSERT_TRUE(rebuilt) << rebuilt.error().message();
    cores_ = {take(zero), take(one), cores_[2]};
    ASSERT_THAT(cores_, testing::Each(testing::NotNull()));
    for (const Core& core : cores_) {
      EXPECT_EQ(core->id(), id);
      EXPECT_EQ(core->epoch()->size(), kSize);
    }
  }
}

// The member has left the previous group, so the new rank 0 does not join that group.
TEST_P(Seats, WhoGivesUpARebuildMayJoinAgain) {
  const std::uint64_t id = cores_[0]->id();
  leave(0);
  Meeting zero = meet(0);
  const auto given_up =
      cores_[1]->enter(3s, GroupCore::Of::every_place, Fence::none, "group.rebuild");
  ASSERT_FALSE(given_up);
  const auto before = zero.mesh->channel({1});
  ASSERT_NE(before, nullptr) << "a rebuild looks for the new rank 0";
  leave(1);
  Meeting one = meet(1);
  ASSERT_TRUE(test::eventually([&] { return zero.mesh->channel({1}) != before; }));
  leave(2);
  Meeting two = meet(2);
  for (Meeting* const each : {&zero, &one, &two}) {
    const auto met = each->done.get();
    ASSERT_TRUE(met) << met.error().message();
    EXPECT_FALSE(each->mesh->replacement());
    EXPECT_EQ(each->mesh->first_group(), zero.mesh->first_group());
  }
  EXPECT_NE(zero.mesh->first_group(), id);
}

// The newcomer does not take this for the end of a previous group, and does not wait for the next.
TEST_P(Seats, WhoClosesItsContextEndsAJoin) {
  for (std::uint32_t rank = 0; rank < kSize; ++rank) leave(rank);
  Meeting zero = meet(0);
  Joining one = join(1);
  ASSERT_TRUE(test::eventually([&] { return zero.mesh->channel({1}) != nullptr; }));
  (void)members_[0].close(kSoon);
  EXPECT_TRUE(test::fails_with(zero.done.get(), ErrorCode::context_closed, ""));
  EXPECT_TRUE(
      test::fails_with(one.get(), ErrorCode::peer_lost, "has given up: its Context was closed"));
}

// A Completion has a share of all that it needs, for as long as the caller keeps it.
TEST_P(Seats, AGroupEndsWithItsHandle) {
  const Core kept = cores_[0];
  Joining one = come_again(1, {0, 2});
  leave(2);
  leave(0);
  Joining zero = join(0);
  Joining two = join(2);
  cores_ = {take(zero), take(one), take(two)};
  ASSERT_THAT(cores_, testing::Each(testing::NotNull()));
}

INSTANTIATE_TEST_SUITE_P(Paths, Seats, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);
INSTANTIATE_TEST_SUITE_P(Paths, Rejoin, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

}  // namespace
}  // namespace tendon
