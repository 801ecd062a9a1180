// SPDX-License-Identifier: Apache-2.0
// Processes that take the places of others.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <future>
#include <tendon/tensor/tensor.hpp>

#include "support/expect.hpp"
#include "support/group_members.hpp"
#include "support/map_store.hpp"

namespace tendon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

/// Members that start and end, each a thread with a Context of its own. The variables that their
/// bodies use are declared before it.
class Members {
 public:
  using Body = std::function<void(Context&, Group&)>;
  Members(std::uint32_t size, Transport transport) : size_(size), transport_(transport) {}
  ~Members() { join(); }
  void add(std::uint32_t rank, Body body) {
    threads_.emplace_back([this, rank, body = std::move(body)] {
      auto context =
          Context::create({.name = "member", .transport = transport_, .lease = test::kLongLease});
      ASSERT_TRUE(context) << context.error().message();
      auto group =
          Group::join(*context, Rendezvous::through(store_, GroupRank{rank}, size_), kSoon);
      ASSERT_TRUE(group) << "rank " << rank << ": " << group.error().message();
      body(*context, *group);
    });
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] Rendezvous rendezvous(std::uint32_t rank) const {
    return Rendezvous::through(store_, GroupRank{rank}, size_);
  }

 private:
  const std::shared_ptr<test::MapStore> store_ = std::make_shared<test::MapStore>();
  const std::uint32_t size_;
  const Transport transport_;
  std::vector<std::thread> threads_;
};

void expect_sum(Group& group) {
  std::int64_t wanted = 0;
  for (std::uint32_t rank = 0; rank < group.size(); ++rank) wanted += rank + 1;
  for (const std::int64_t count : {1, 50'000}) {
    const Tensor tensor = Tensor::zeros(DType::i64, Shape({count})).value();
    for (std::int64_t& element : tensor.span<std::int64_t>()) element = group.rank().value + 1;
    const auto done = group.all_reduce(tensor, ReduceOp::sum, kSoon);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ(tensor.span<std::int64_t>().front(), wanted);
    EXPECT_EQ(tensor.span<std::int64_t>().back(), wanted);
  }
}

class Rebuild : public testing::TestWithParam<Transport> {};

TEST_P(Rebuild, AnotherProcessTakesThePlace) {
  for (std::uint32_t victim = 0; victim < 3; ++victim) {
    SCOPED_TRACE("rank " + std::to_string(victim) + " is replaced");
    std::promise<void> gone;
    Members members(3, GetParam());
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      members.add(rank, [&, victim](Context& context, Group& group) {
        const std::uint32_t me = group.rank().value;
        expect_sum(group);
        if (me == victim) {
          (void)context.close(1s);
          return gone.set_value();
        }
        ASSERT_FALSE(group.barrier(kSoon));
        const auto complete = group.rebuild(kSoon);
        ASSERT_TRUE(complete) << complete.error().message();
        EXPECT_EQ(*complete, 2u);
        EXPECT_EQ(group.rank().value, me);
        ASSERT_EQ(group.size(), 3u);
        expect_sum(group);
        const auto all = {GroupRank{0}, GroupRank{1}, GroupRank{2}};
        auto again = group.subgroup(all, kSoon);
        ASSERT_TRUE(again) << again.error().message();
        expect_sum(*again);
      });
    }
    gone.get_future().wait();
    members.add(victim, [&, victim](Context&, Group& group) {
      EXPECT_EQ(group.rank().value, victim);
      ASSERT_EQ(group.size(), 3u);
      EXPECT_EQ(group.last_complete_sequence(), 2u);
      expect_sum(group);
      const auto all = {GroupRank{0}, GroupRank{1}, GroupRank{2}};
      auto again = group.subgroup(all, kSoon);
      ASSERT_TRUE(again) << again.error().message();
      expect_sum(*again);
    });
  }
}

// A newcomer knows only the group that it joined.
TEST_P(Rebuild, GroupsThatWereSplitAreMadeAgainInTheSameOrder) {
  constexpr std::uint32_t kVictim = 3;
  const std::vector<std::vector<GlobalRank>> rows = {{{0}, {1}}, {{2}, {3}}};
  const std::vector<std::vector<GlobalRank>> columns = {{{0}, {2}}, {{1}, {3}}};
  const auto split = [&](Group& group) {
    const std::uint32_t me = group.rank().value;
    std::vector<Group> parts;
    for (const auto& lists : {rows, columns}) {
      for (const auto& list : lists) {
        if (std::ranges::find(list, GlobalRank{me}) == list.end()) continue;
        auto part = group.split(list, kSoon);
        EXPECT_TRUE(test::succeeds(part));
        if (part) parts.push_back(*std::move(part));
      }
    }
    return parts;
  };
  std::promise<void> gone;
  Members members(4, GetParam());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    members.add(rank, [&](Context& context, Group& group) {
      const std::uint32_t me = group.rank().value;
      std::vector<Group> parts = split(group);
      ASSERT_EQ(parts.size(), 2u);
      if (me == kVictim) {
        ASSERT_TRUE(group.barrier(kSoon));
        (void)context.close(1s);
        return gone.set_value();
      }
      ASSERT_TRUE(group.barrier(kSoon));
      ASSERT_FALSE(group.barrier(kSoon));
      for (std::size_t i = 0; i < 2; ++i) {
        // Rank 2 shares a row with the dead member, rank 1 a column.
        if (me != 2 - i) continue;
        EXPECT_TRUE(test::fails_with(parts[i].rebuild(kSoon), ErrorCode::invalid_argument,
                                     "the place of rank 3"));
      }
      ASSERT_TRUE(test::succeeds(group.rebuild(kSoon)));
      parts = split(group);
      ASSERT_EQ(parts.size(), 2u);
      for (Group& part : parts) expect_sum(part);
    });
  }
  gone.get_future().wait();
  members.add(kVictim, [&](Context&, Group& group) {
    std::vector<Group> parts = split(group);
    ASSERT_EQ(parts.size(), 2u);
    for (Group& part : parts) expect_sum(part);
  });
}

TEST_P(Rebuild, AGroupThatWasSplitAndLostNobodyGoesOnByItself) {
  Members members(2, GetParam());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    members.add(rank, [&](Context&, Group& group) {
      auto part = group.split(std::array{GlobalRank{1}, GlobalRank{0}}, kSoon);
      ASSERT_TRUE(test::succeeds(part));
      if (part->rank().value == 0) part->abort("a test");
      ASSERT_FALSE(part->barrier(kSoon));
      ASSERT_TRUE(test::succeeds(part->rebuild(kSoon)));
      expect_sum(*part);
      expect_sum(group);
    });
  }
}

// The others may have entered with the board that it showed before its timeout.
TEST_P(Rebuild, AShrinkThatTimedOutIsTriedAgain) {
  std::promise<void> tried;
  auto has_tried = tried.get_future().share();
  Members members(3, GetParam());
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    members.add(rank, [&](Context& context, Group& group) {
      ASSERT_TRUE(group.barrier(kSoon));
      if (group.rank().value == 2) return (void)context.close(1s);
      ASSERT_FALSE(group.barrier(kSoon));
      if (group.rank().value == 0) {
        has_tried.wait();
      } else {
        for (int i = 0; i < 10; ++i) EXPECT_FALSE(group.shrink(10ms));
        tried.set_value();
      }
      const auto left = group.shrink(kSoon);
      ASSERT_TRUE(left) << left.error().message();
      ASSERT_EQ(group.size(), 2u);
      expect_sum(group);
    });
  }
}

// A rebuild asks for more than the others entered meanwhile.
TEST_P(Rebuild, AfterAShrinkThatTimedOutAllPlacesAreTaken) {
  std::promise<void> tried;
  auto has_tried = tried.get_future().share();
  std::promise<void> shrunk;
  Members members(3, GetParam());
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    members.add(rank, [&](Context& context, Group& group) {
      ASSERT_TRUE(group.barrier(kSoon));
      if (group.rank().value == 2) return (void)context.close(1s);
      ASSERT_FALSE(group.barrier(kSoon));
      if (group.rank().value == 0) {
        has_tried.wait();
        const auto left = group.shrink(kSoon);
        ASSERT_TRUE(left) << left.error().message();
        EXPECT_EQ(group.size(), 2u);
        shrunk.set_value();
      } else {
        for (std::string said; said.find("not ready") == std::string::npos;) {
          const auto late = group.shrink(10ms);
          ASSERT_FALSE(late);
          said = late.error().detail;
        }
        tried.set_value();
      }
      const auto complete = group.rebuild(kSoon);
      ASSERT_TRUE(complete) << complete.error().message();
      ASSERT_EQ(group.size(), 3u);
      expect_sum(group);
    });
  }
  shrunk.get_future().wait();
  members.add(2, [&](Context&, Group& group) { expect_sum(group); });
}

TEST_P(Rebuild, TwoPlacesAtOnceRankZeroAmongThem) {
  std::promise<void> gone[2];
  Members members(4, GetParam());
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    members.add(rank, [&](Context& context, Group& group) {
      const std::uint32_t me = group.rank().value;
      ASSERT_TRUE(group.barrier(kSoon));
      if (me % 2 == 0) {
        (void)context.close(1s);
        return gone[me / 2].set_value();
      }
      ASSERT_FALSE(group.barrier(kSoon));
      const auto complete = group.rebuild(kSoon);
      ASSERT_TRUE(complete) << complete.error().message();
      ASSERT_EQ(group.size(), 4u);
      expect_sum(group);
    });
  }
  for (auto& each : gone) each.get_future().wait();
  for (const std::uint32_t rank : {2u, 0u})
    members.add(rank, [&](Context&, Group& group) { expect_sum(group); });
}

TEST_P(Rebuild, AGroupShrinksWorksAndGrowsAgain) {
  std::promise<void> gone;
  std::promise<void> shrunk;
  Members members(3, GetParam());
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    members.add(rank, [&](Context& context, Group& group) {
      ASSERT_TRUE(group.barrier(kSoon));
      if (group.rank().value == 1) {
        (void)context.close(1s);
        return gone.set_value();
      }
      ASSERT_FALSE(group.barrier(kSoon));
      ASSERT_TRUE(group.shrink(kSoon));
      ASSERT_EQ(group.size(), 2u);
      expect_sum(group);
      // No newcomer has arrived: the same members, in a new epoch.
      ASSERT_TRUE(group.grow(kSoon));
      ASSERT_EQ(group.size(), 2u);
      expect_sum(group);
      if (group.rank().value == 0) shrunk.set_value();
      // The members work until a newcomer arrives. All of them decide alike.
      while (group.size() == 2) {
        expect_sum(group);
        const auto complete = group.grow(kSoon);
        ASSERT_TRUE(complete) << complete.error().message();
      }
      expect_sum(group);
    });
  }
  gone.get_future().wait();
  shrunk.get_future().wait();
  members.add(1, [&](Context&, Group& group) {
    ASSERT_EQ(group.size(), 3u);
    EXPECT_EQ(group.rank().value, 1u);
    expect_sum(group);
  });
}

TEST_P(Rebuild, WhatTheProcessBeforeSentAndNobodyTookIsDropped) {
  const auto send = [](Group& group, std::int64_t value) {
    const Tensor tensor = Tensor::of<std::int64_t>({1}, {value});
    const auto sent = group.send(tensor, {GroupRank{0}}, kSoon);
    EXPECT_TRUE(sent) << sent.error().message();
  };
  std::promise<void> gone;
  Members members(2, GetParam());
  members.add(0, [&](Context&, Group& group) {
    ASSERT_TRUE(group.barrier(kSoon));
    ASSERT_FALSE(group.barrier(kSoon));
    const auto complete = group.rebuild(kSoon);
    ASSERT_TRUE(complete) << complete.error().message();
    const Tensor tensor = Tensor::zeros(DType::i64, Shape({1})).value();
    const auto received = group.recv(tensor, {GroupRank{1}}, kSoon);
    ASSERT_TRUE(received) << received.error().message();
    EXPECT_EQ(tensor.item<std::int64_t>({0}), 2);
    EXPECT_TRUE(group.barrier(kSoon));
  });
  members.add(1, [&](Context& context, Group& group) {
    send(group, 1);
    ASSERT_TRUE(group.barrier(kSoon));
    (void)context.close(1s);
    gone.set_value();
  });
  gone.get_future().wait();
  members.add(1, [&](Context&, Group& group) {
    send(group, 2);
    EXPECT_TRUE(group.barrier(kSoon));
  });
}

TEST_P(Rebuild, NobodyComesInTime) {
  Members members(2, GetParam());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    members.add(rank, [&](Context&, Group& group) {
      ASSERT_TRUE(group.barrier(kSoon));
      if (group.rank().value == 1) return;
      ASSERT_FALSE(group.barrier(kSoon));  // the loss is known after it
      const auto failed = group.rebuild(1s);
      ASSERT_FALSE(failed);
      EXPECT_EQ(failed.error().code, ErrorCode::timeout);
      EXPECT_THAT(failed.error().detail, HasSubstr("in the place of rank 1"));
      // A smaller group is still possible.
      EXPECT_TRUE(group.shrink(kSoon));
      EXPECT_EQ(group.size(), 1u);
    });
  }
}

// The member in this place is alive, so a process that wants the place is refused.
TEST_P(Rebuild, APlaceThatIsTakenIsNotGivenAway) {
  std::promise<void> whole;
  std::promise<void> refused;
  auto said = refused.get_future().share();
  Members members(2, GetParam());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    members.add(rank, [&](Context&, Group& group) {
      expect_sum(group);
      if (group.rank().value == 0) whole.set_value();
      said.wait();
      expect_sum(group);
    });
  }
  whole.get_future().wait();
  auto context = Context::create({.name = "second", .transport = GetParam()});
  ASSERT_TRUE(context);
  const auto group = Group::join(*context, members.rendezvous(1), 3s);
  ASSERT_FALSE(group);
  EXPECT_THAT(group.error().detail, AllOf(HasSubstr("rank 1"), HasSubstr("second")));
  refused.set_value();
}

// One place after the other, round and round: each time rank `time` modulo 3 is replaced.
TEST_P(Rebuild, ManyTimes) {
  constexpr std::uint32_t kTimes = 9;
  std::vector<std::promise<void>> gone(kTimes);
  Members members(3, GetParam());
  const auto live = [&](Context& context, Group& group, std::uint32_t time) {
    const std::uint32_t me = group.rank().value;
    for (; time < kTimes; ++time) {
      expect_sum(group);
      if (time % 3 == me) {
        (void)context.close(1s);
        return gone[time].set_value();
      }
      ASSERT_FALSE(group.barrier(kSoon));
      const auto complete = group.rebuild(kSoon);
      ASSERT_TRUE(complete) << "time " << time << ": " << complete.error().message();
    }
    expect_sum(group);
  };
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    members.add(rank, [&](Context& context, Group& group) { live(context, group, 0); });
  for (std::uint32_t time = 0; time < kTimes; ++time) {
    gone[time].get_future().wait();
    members.add(time % 3,
                [&, time](Context& context, Group& group) { live(context, group, time + 1); });
  }
  members.join();
}

INSTANTIATE_TEST_SUITE_P(Paths, Rebuild, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

}  // namespace
}  // namespace tendon
