// SPDX-License-Identifier: Apache-2.0
// Scripts of members several of which share a host: the results, and the bytes between hosts.
#include <gtest/gtest.h>

#include <set>

#include "unit/group/script_simulator.hpp"

namespace tendon::detail {
namespace {

using Ranks = std::vector<std::uint32_t>;

/// Makes the hosts from the number of each member's host.
Hosts hosts_of(const Ranks& host_of_rank) {
  std::vector<std::string> names;
  for (const std::uint32_t host : host_of_rank) names.push_back("host " + std::to_string(host));
  return Hosts(names);
}

/// The bytes that a member sends to other hosts.
std::uint64_t bytes_out(std::uint32_t rank, const Script& script, const Hosts& hosts) {
  std::uint64_t bytes = 0;
  for (const Step& step : script.steps)
    if (step.kind == Kind::send && hosts.host_of(rank) != hosts.host_of(step.peer))
      bytes += step.size_bytes;
  return bytes;
}

/// The bytes that all members send to other hosts.
std::uint64_t bytes_between(const std::vector<Simulated>& members, const Hosts& hosts) {
  std::uint64_t bytes = 0;
  for (std::uint32_t rank = 0; rank < members.size(); ++rank)
    bytes += bytes_out(rank, members[rank].script, hosts);
  return bytes;
}

class Levels : public testing::TestWithParam<Ranks> {
 protected:
  std::uint32_t n() const { return hosts_.member_count(); }
  const Hosts& hosts() const { return hosts_; }
  Random& random() { return random_; }

  /// Calls `test(size, cut, reads, seed)`.
  template <typename Test>
  void for_each_size(Test test) {
    for (const std::uint64_t size : kSizes) {
      const Cut cut{.piece_bytes = size == kLargeBytes || random_() % 2 == 0 ? 4096U : 256U};
      for (const Reads reads : kReads) {
        if (size > 4096 && reads != kReads[random_() % 3]) continue;
        const std::uint64_t seed = random_();
        SCOPED_TRACE(say(seed, "size " + std::to_string(size) + ", piece " +
                                   std::to_string(cut.piece_bytes) + ", reads " +
                                   std::to_string(static_cast<int>(reads))));
        test(size, cut, reads, seed);
        if (HasFatalFailure()) return;
      }
    }
  }
  /// Calls `test(counts, cut, reads, seed)` with sizes of blocks, some of them 0.
  template <typename Test>
  void for_some_counts(Test test) {
    const std::uint64_t kinds[] = {0, 0, 1, 8, 63, 64, 65, 4096, 5003, 20003};
    for (int round = 0; round < 12; ++round) {
      const std::uint64_t most = round == 0 ? 1 : std::size(kinds);
      std::vector<std::uint64_t> counts(n());
      std::string what = "counts";
      for (std::uint64_t& count : counts) {
        count = kinds[random_() % most];
        what += " " + std::to_string(count);
      }
      const std::uint64_t seed = random_();
      SCOPED_TRACE(say(seed, what));
      test(counts, Cut{.piece_bytes = random_() % 2 == 0 ? std::uint64_t{256} : 4096},
           kReads[round % 3], seed);
      if (HasFatalFailure()) return;
    }
  }
  /// Few shards, many, and the maximum.
  std::set<std::uint32_t> shard_counts() const {
    const std::uint32_t most = hosts_.most_on_one();
    std::set<std::uint32_t> counts;
    for (const std::uint32_t count : {1u, 2u, 3u, most - 1, most})
      if (count >= 1 && count <= most) counts.insert(count);
    return counts;
  }
  /// All ranks, host by host: the hosts as members of a group that begins with `first`.
  Ranks by_host(std::uint32_t first) const {
    Ranks order;
    for (std::uint32_t i = 0; i < hosts_.count(); ++i) {
      const auto ranks = hosts_.ranks((first + i) % hosts_.count());
      order.insert(order.end(), ranks.begin(), ranks.end());
    }
    return order;
  }

 private:
  const Hosts hosts_ = hosts_of(GetParam());
  const std::uint64_t seed_ = std::random_device()();
  Random random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "first seed " + std::to_string(seed_)};
};

constexpr AllReduceAlgorithm kBetween[] = {AllReduceAlgorithm::ring,
                                           AllReduceAlgorithm::recursive_doubling,
                                           AllReduceAlgorithm::halving_doubling};

TEST_P(Levels, HostsAreCountedByTheirLowestRanks) {
  std::uint32_t seen = 0;
  std::uint32_t most = 0;
  for (std::uint32_t rank = 0; rank < n(); ++rank) {
    const std::uint32_t host = hosts().host_of(rank);
    ASSERT_LE(host, seen);
    seen = std::max(seen, host + 1);
    EXPECT_EQ(hosts().ranks(host)[hosts().index_of(rank)], rank);
    for (std::uint32_t other = 0; other < n(); ++other)
      EXPECT_EQ(hosts().host_of(other) == host, GetParam()[other] == GetParam()[rank]);
    most = std::max(most, static_cast<std::uint32_t>(hosts().ranks(host).size()));
  }
  EXPECT_EQ(hosts().count(), seen);
  EXPECT_EQ(hosts().most_on_one(), most);
  EXPECT_EQ(hosts().are_levels(), seen > 1 && most > 1);
}

TEST_P(Levels, AllReduceGivesEverybodyTheSameBitsInTheOrderItSays) {
  for_each_size([&](std::uint64_t size, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (const AllReduceAlgorithm between : kBetween) {
      for (const std::uint32_t shards : shard_counts()) {
        for (const Combining& operation : {kCompose, kHash}) {
          if (size == kLargeBytes && operation.name == kHash.name) continue;
          SCOPED_TRACE(std::to_string(static_cast<int>(between)) + " " + operation.name + " " +
                       std::to_string(shards) + " shards");
          Random bytes(seed);
          std::vector<Memory> operands;
          std::vector<Simulated> members;
          for (std::uint32_t rank = 0; rank < n(); ++rank) {
            operands.push_back(random_memory(bytes, size));
            members.push_back(
                {two_level_all_reduce_script(rank, hosts(), size, cut, {shards, between}),
                 {},
                 operands.back()});
            ASSERT_TRUE(cut_well(members.back().script, size, cut)) << rank;
            ASSERT_EQ(members.back().script.scratch_bytes, 0U);
          }
          ASSERT_EQ(Simulation(members, operation, reads, seed).run(), "");
          for (const Simulated& member : members) ASSERT_TRUE(member.output == members[0].output);
          if (operation.name != kCompose.name) continue;
          // Combines the values of each host, then the hosts.
          std::vector<Memory> sums;
          for (std::uint32_t host = 0; host < hosts().count(); ++host) {
            const auto ranks = hosts().ranks(host);
            sums.push_back(fold(operation, operands, {ranks.begin(), ranks.end()}, 0, size));
          }
          const std::uint64_t grains = (size + 63) / 64;
          Memory expected;
          for (std::uint32_t shard = 0; shard < shards; ++shard) {
            const std::uint64_t begin = expected.size();
            const std::uint64_t mine = grains / shards + (shard < grains % shards ? 1 : 0);
            const std::uint64_t end = std::min(begin + mine * 64, size);
            std::vector<Memory> parts;
            for (const Memory& sum : sums)
              parts.emplace_back(sum.begin() + static_cast<std::ptrdiff_t>(begin),
                                 sum.begin() + static_cast<std::ptrdiff_t>(end));
            const Memory part =
                between == AllReduceAlgorithm::ring
                    ? ring_fold(operation, parts, end - begin)
                    : fold(operation, parts, ranks_from(0, hosts().count()), 0, end - begin);
            expected.insert(expected.end(), part.begin(), part.end());
          }
          ASSERT_TRUE(members[0].output == expected);
        }
      }
    }
  });
}

TEST_P(Levels, AllReduceCrossesBetweenHostsOnceForEachHost) {
  const std::uint64_t hosts_count = hosts().count();
  for (const std::uint32_t shards : shard_counts()) {
    std::vector<Simulated> levels;
    std::vector<Simulated> flat;
    for (std::uint32_t rank = 0; rank < n(); ++rank) {
      levels.push_back({two_level_all_reduce_script(rank, hosts(), kLargeBytes, {},
                                                    {shards, AllReduceAlgorithm::ring}),
                        {},
                        {}});
      flat.push_back(
          {all_reduce_script({rank, n()}, kLargeBytes, {}, AllReduceAlgorithm::ring), {}, {}});
    }
    const std::uint64_t crossing = bytes_between(levels, hosts());
    EXPECT_EQ(crossing, 2 * (hosts_count - 1) * kLargeBytes) << shards;
    if (hosts().are_levels()) {
      EXPECT_LT(crossing, bytes_between(flat, hosts()));
    }
  }
}

TEST_P(Levels, ReduceAndBroadcastCrossOnceForEachOtherHost) {
  for_each_size([&](std::uint64_t size, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (std::uint32_t root = 0; root < n(); ++root) {
      if (size > 4096 && root != 0 && root != n() / 2) continue;
      for (const bool chain : {false, true}) {
        SCOPED_TRACE("root " + std::to_string(root) + (chain ? ", chain" : ", tree"));
        Random bytes(seed + root);
        const bool in_place = bytes() % 2 == 0;
        std::vector<Memory> operands;
        std::vector<Simulated> reduce;
        std::vector<Simulated> broadcast;
        const Memory rubbish = random_memory(bytes, size);
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          operands.push_back(random_memory(bytes, size));
          reduce.push_back({two_level_reduce_script(rank, hosts(), root, size, cut,
                                                    chain ? ReduceAlgorithm::two_level_chain
                                                          : ReduceAlgorithm::two_level_tree),
                            operands.back(), in_place ? operands.back() : rubbish});
          if (in_place) reduce.back().in_place = 0;
          broadcast.push_back(
              {two_level_broadcast_script(rank, hosts(), root, size, cut,
                                          chain ? BroadcastAlgorithm::two_level_chain
                                                : BroadcastAlgorithm::two_level_tree),
               {},
               operands.back()});
          ASSERT_TRUE(cut_well(reduce.back().script, size, cut)) << rank;
          ASSERT_TRUE(cut_well(broadcast.back().script, size, cut)) << rank;
          ASSERT_LE(reduce.back().script.scratch_bytes, std::min(size, 4 * cut.piece_bytes));
        }
        EXPECT_EQ(bytes_between(reduce, hosts()), (hosts().count() - 1) * size);
        EXPECT_EQ(bytes_between(broadcast, hosts()), (hosts().count() - 1) * size);
        ASSERT_EQ(Simulation(reduce, kCompose, reads, seed).run(), "");
        ASSERT_EQ(Simulation(broadcast, kHash, reads, seed).run(), "");
        // The root's host begins with the root.
        Ranks order = by_host(hosts().host_of(root));
        std::rotate(order.begin(), order.begin() + hosts().index_of(root),
                    order.begin() +
                        static_cast<std::ptrdiff_t>(hosts().ranks(hosts().host_of(root)).size()));
        ASSERT_TRUE(reduce[root].output == fold(kCompose, operands, order, 0, size));
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          ASSERT_TRUE(broadcast[rank].output == operands[root]) << rank;
          ASSERT_TRUE(reduce[rank].input == operands[rank]) << rank;
          if (rank != root) {
            ASSERT_TRUE(reduce[rank].output == (in_place ? operands[rank] : rubbish)) << rank;
          }
        }
      }
    }
  });
}

TEST_P(Levels, AllGatherBringsEachBlockToEachHostOnce) {
  for_some_counts([&](const auto& counts, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (const bool in_place : {false, true}) {
      Random bytes(seed);
      std::vector<Memory> blocks;
      Memory all;
      std::vector<std::uint64_t> begins;
      for (const std::uint64_t count : counts) {
        begins.push_back(all.size());
        blocks.push_back(random_memory(bytes, count));
        all.insert(all.end(), blocks.back().begin(), blocks.back().end());
      }
      std::vector<Simulated> members;
      for (std::uint32_t rank = 0; rank < n(); ++rank) {
        members.push_back({two_level_all_gather_script(rank, hosts(), counts, cut), blocks[rank],
                           random_memory(bytes, all.size())});
        if (!in_place) continue;
        members.back().in_place = begins[rank];
        std::copy(blocks[rank].begin(), blocks[rank].end(),
                  members.back().output.begin() + static_cast<std::ptrdiff_t>(begins[rank]));
      }
      EXPECT_EQ(bytes_between(members, hosts()), (hosts().count() - 1) * all.size());
      ASSERT_EQ(Simulation(members, kHash, reads, seed).run(), "");
      for (std::uint32_t rank = 0; rank < n(); ++rank) {
        ASSERT_TRUE(members[rank].output == all) << rank;
        ASSERT_TRUE(members[rank].input == blocks[rank]) << rank;
      }
    }
  });
}

TEST_P(Levels, ReduceScatterSendsEachOtherHostOneOperandOfEachBlock) {
  for_some_counts([&](const auto& counts, const Cut& cut, Reads reads, std::uint64_t seed) {
    const std::uint64_t whole = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    Random bytes(seed);
    std::vector<Memory> operands;
    std::vector<Simulated> members;
    for (std::uint32_t rank = 0; rank < n(); ++rank) {
      operands.push_back(random_memory(bytes, whole));
      members.push_back({two_level_reduce_scatter_script(rank, hosts(), counts, cut),
                         operands.back(), random_memory(bytes, counts[rank])});
      for (const Step& step : members.back().script.steps)
        ASSERT_EQ(step.to.buffer == Buffer::scratch ? step.to.offset % 64 : 0, 0U);
    }
    EXPECT_EQ(bytes_between(members, hosts()), (hosts().count() - 1) * whole);
    ASSERT_EQ(Simulation(members, kCompose, reads, seed).run(), "");
    std::uint64_t begin = 0;
    for (std::uint32_t rank = 0; rank < n(); begin += counts[rank++]) {
      ASSERT_TRUE(members[rank].input == operands[rank]) << rank;
      ASSERT_TRUE(members[rank].output ==
                  fold(kCompose, operands, by_host(0), begin, begin + counts[rank]))
          << rank;
    }
  });
}

TEST_P(Levels, BarrierHearsOfEverybody) {
  const auto scripts = [&] {
    std::vector<Simulated> members;
    for (std::uint32_t rank = 0; rank < n(); ++rank)
      members.push_back({two_level_barrier_script(rank, hosts()), {}, {}});
    return members;
  };
  auto all = scripts();
  std::size_t crossing = 0;
  for (std::uint32_t rank = 0; rank < n(); ++rank)
    for (const Step& step : all[rank].script.steps)
      if (step.kind == Kind::send && hosts().host_of(rank) != hosts().host_of(step.peer))
        ++crossing;
  EXPECT_EQ(crossing,
            hosts().count() * static_cast<std::size_t>(std::bit_width(hosts().count() - 1)));
  ASSERT_EQ(Simulation(all, kHash, Reads::late, n()).run(), "");
  for (std::uint32_t absent = 0; absent < n() && n() > 1; ++absent) {
    auto rest = scripts();
    rest[absent].script.steps.clear();
    (void)Simulation(rest, kHash, Reads::late, n()).run();
    for (std::uint32_t rank = 0; rank < n(); ++rank) {
      if (rank == absent) continue;
      EXPECT_LT(rest[rank].done, rest[rank].script.steps.size()) << rank;
    }
  }
}

TEST(LevelsOfEqualHosts, EachMemberHasItsShareOfTheWayBetweenThem) {
  constexpr std::uint64_t kBlock = 4096;
  for (const Ranks& partition : {Ranks{0, 0, 0, 1, 1, 1}, Ranks{0, 1, 0, 1, 0, 1}}) {
    const Hosts hosts = hosts_of(partition);
    const std::vector<std::uint64_t> counts(6, kBlock);
    for (std::uint32_t rank = 0; rank < 6; ++rank) {
      const auto out = [&](const Script& script) { return bytes_out(rank, script, hosts); };
      EXPECT_EQ(out(two_level_all_gather_script(rank, hosts, counts, {})), kBlock);
      EXPECT_EQ(out(two_level_reduce_scatter_script(rank, hosts, counts, {})), kBlock);
      EXPECT_EQ(out(two_level_all_reduce_script(rank, hosts, 6 * kBlock, {},
                                                {3, AllReduceAlgorithm::ring})),
                2 * kBlock);
    }
  }
}

std::string name_of(const testing::TestParamInfo<Ranks>& tested) {
  std::string name = "hosts";
  for (const std::uint32_t host : tested.param) name += std::to_string(host);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Partitions, Levels,
                         testing::Values(Ranks{0}, Ranks{0, 0}, Ranks{0, 1}, Ranks{0, 0, 1},
                                         Ranks{0, 1, 1}, Ranks{0, 1, 0}, Ranks{0, 0, 1, 1},
                                         Ranks{0, 1, 0, 1}, Ranks{0, 1, 1, 0}, Ranks{0, 1, 2, 3},
                                         Ranks{0, 0, 0, 0, 1}, Ranks{0, 1, 1, 1, 2, 2},
                                         Ranks{2, 0, 1, 0, 2, 2, 0}, Ranks{0, 0, 0, 0, 1, 1, 1, 1},
                                         Ranks{0, 1, 2, 3, 0, 1, 2, 3},
                                         Ranks{0, 0, 1, 1, 2, 2, 3, 3, 4, 4},
                                         Ranks{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2}),
                         name_of);

}  // namespace
}  // namespace tendon::detail
