// SPDX-License-Identifier: Apache-2.0
#include "group/scripts/script.hpp"

#include <gtest/gtest.h>

#include "unit/group/script_simulator.hpp"

namespace tendon::detail {
namespace {

class ScriptOf : public testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t n() const { return GetParam(); }
  Random& random() { return random_; }

  /// Calls `test(size, cut, reads, seed)`; large sizes once, with large pieces.
  template <typename Test>
  void for_each_size(Test test) {
    for (const std::uint64_t size : kSizes) {
      for (const std::uint64_t piece : {256, 4096}) {
        for (const Reads reads : kReads) {
          if (size > 4096 && reads != kReads[random_() % 3]) continue;
          if (size == kLargeBytes && piece == 256) continue;
          const std::uint64_t seed = random_();
          SCOPED_TRACE(say(seed, "n " + std::to_string(n()) + ", size " + std::to_string(size) +
                                     ", piece " + std::to_string(piece) + ", reads " +
                                     std::to_string(static_cast<int>(reads))));
          test(size, Cut{.piece_bytes = piece}, reads, seed);
          if (HasFatalFailure()) return;
        }
      }
    }
  }

  /// Sizes of blocks, some of them 0; all 0 sometimes.
  std::vector<std::uint64_t> random_counts() {
    const std::uint64_t kinds[] = {0, 0, 1, 8, 63, 64, 65, 4096, 5003, 100003};
    const std::uint64_t most = random_() % 8 == 0 ? 2 : std::size(kinds);
    std::vector<std::uint64_t> counts(n());
    for (std::uint64_t& count : counts) count = kinds[random_() % most];
    return counts;
  }
  /// Calls `test(counts, cut, reads, seed)`.
  template <typename Test>
  void for_some_counts(Test test) {
    for (int round = 0; round < 12; ++round) {
      const std::vector<std::uint64_t> counts = random_counts();
      const std::uint64_t seed = random_();
      const Cut cut{.piece_bytes = random_() % 2 == 0 ? std::uint64_t{256} : 4096};
      std::string what = "counts";
      for (const std::uint64_t count : counts) what += " " + std::to_string(count);
      SCOPED_TRACE(say(seed, what));
      test(counts, cut, kReads[round % 3], seed);
      if (HasFatalFailure()) return;
    }
  }
  static std::uint64_t sum(const std::vector<std::uint64_t>& counts, std::size_t members) {
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(members),
                           std::uint64_t{0});
  }

 private:
  const std::uint64_t seed_ = std::random_device()();
  Random random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "first seed " + std::to_string(seed_)};
};

constexpr AllReduceAlgorithm kAllReduce[] = {AllReduceAlgorithm::ring,
                                             AllReduceAlgorithm::recursive_doubling,
                                             AllReduceAlgorithm::halving_doubling};

TEST_P(ScriptOf, AllReduceGivesEverybodyTheSameBitsInTheOrderItSays) {
  for_each_size([&](std::uint64_t size, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (const AllReduceAlgorithm algorithm : kAllReduce) {
      for (const Combining& operation : {kCompose, kHash}) {
        if (size == kLargeBytes && operation.name == kHash.name) continue;
        SCOPED_TRACE(std::to_string(static_cast<int>(algorithm)) + " " + operation.name);
        Random bytes(seed);
        std::vector<Memory> operands;
        std::vector<Simulated> members;
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          operands.push_back(random_memory(bytes, size));
          members.push_back(
              {all_reduce_script({rank, n()}, size, cut, algorithm), {}, operands.back()});
          ASSERT_TRUE(cut_well(members.back().script, size, cut)) << rank;
        }
        ASSERT_EQ(Simulation(members, operation, reads, seed).run(), "");
        for (const Simulated& member : members) ASSERT_TRUE(member.output == members[0].output);
        if (algorithm == AllReduceAlgorithm::ring) {
          ASSERT_TRUE(members[0].output == ring_fold(operation, operands, size));
        } else if (operation.name == kCompose.name) {
          ASSERT_TRUE(members[0].output == fold(operation, operands, ranks_from(0, n()), 0, size));
        }
      }
    }
  });
}

TEST_P(ScriptOf, RingAllReduceSendsTheLeastPossible) {
  for (const std::uint64_t size : kSizes) {
    for (std::uint32_t rank = 0; rank < n(); ++rank) {
      const std::uint64_t sent =
          bytes_sent(all_reduce_script({rank, n()}, size, {}, AllReduceAlgorithm::ring));
      EXPECT_LE(sent, 2 * (n() - 1) * (size / n() + 64)) << size << " " << rank;
      if (size == kLargeBytes && n() > 1) {
        EXPECT_GE(sent, 2 * (n() - 1) * (size / n() - 64)) << "less than possible";
      }
    }
  }
}

TEST_P(ScriptOf, ReduceGivesItToTheRootAlone) {
  for_each_size([&](std::uint64_t size, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (std::uint32_t root = 0; root < n(); ++root) {
      if (size > 4096 && root != 0 && root != n() / 2) continue;
      for (const ReduceAlgorithm algorithm : {ReduceAlgorithm::tree, ReduceAlgorithm::ring}) {
        SCOPED_TRACE("root " + std::to_string(root) + ", algorithm " +
                     std::to_string(static_cast<int>(algorithm)));
        Random bytes(seed + root);
        const bool in_place = bytes() % 2 == 0;
        std::vector<Memory> operands;
        std::vector<Simulated> members;
        const Memory rubbish = random_memory(bytes, size);
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          operands.push_back(random_memory(bytes, size));
          members.push_back({reduce_script({rank, n()}, root, size, cut, algorithm),
                             operands.back(), in_place ? operands.back() : rubbish});
          if (in_place) members.back().in_place = 0;
          ASSERT_TRUE(cut_well(members.back().script, size, cut)) << rank;
          const std::uint64_t blocks = 2 * (size / n() + 127);
          ASSERT_LE(members.back().script.scratch_bytes,
                    algorithm == ReduceAlgorithm::ring ? blocks : size);
        }
        ASSERT_EQ(members[root].script.scratch_bytes, 0U);
        ASSERT_EQ(Simulation(members, kCompose, reads, seed).run(), "");
        ASSERT_TRUE(members[root].output ==
                    (algorithm == ReduceAlgorithm::ring
                         ? ring_fold(kCompose, operands, size)
                         : fold(kCompose, operands, ranks_from(root, n()), 0, size)));
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          ASSERT_TRUE(members[rank].input == operands[rank]) << rank;
          if (rank != root) {
            ASSERT_TRUE(members[rank].output == (in_place ? operands[rank] : rubbish)) << rank;
          }
        }
      }
    }
  });
}

TEST_P(ScriptOf, BroadcastGivesEverybodyWhatTheRootHas) {
  for_each_size([&](std::uint64_t size, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (std::uint32_t root = 0; root < n(); ++root) {
      if (size > 4096 && root != 0 && root != n() / 2) continue;
      for (const auto algorithm : {BroadcastAlgorithm::tree, BroadcastAlgorithm::chain}) {
        Random bytes(seed);
        std::vector<Simulated> members;
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          members.push_back({broadcast_script({rank, n()}, root, size, cut, algorithm),
                             {},
                             random_memory(bytes, size)});
          ASSERT_TRUE(cut_well(members.back().script, size, cut)) << rank;
          if (algorithm == BroadcastAlgorithm::chain) {
            ASSERT_LE(bytes_sent(members.back().script), size);
          }
        }
        const Memory all = members[root].output;
        ASSERT_EQ(Simulation(members, kHash, reads, seed).run(), "") << "root " << root;
        for (const Simulated& member : members) ASSERT_TRUE(member.output == all);
      }
    }
  });
}

/// Blocks of random bytes, with the given sizes.
std::vector<Memory> random_blocks(Random& random, const std::vector<std::uint64_t>& counts) {
  std::vector<Memory> blocks;
  blocks.reserve(counts.size());
  for (const std::uint64_t count : counts) blocks.push_back(random_memory(random, count));
  return blocks;
}
Memory joined(const std::vector<Memory>& blocks) {
  Memory all;
  for (const Memory& block : blocks) all.insert(all.end(), block.begin(), block.end());
  return all;
}

TEST_P(ScriptOf, AllGatherGivesEverybodyAllBlocksUnpadded) {
  for_some_counts([&](const auto& counts, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (const auto algorithm : {AllGatherAlgorithm::ring, AllGatherAlgorithm::bruck}) {
      for (const bool in_place : {false, true}) {
        Random bytes(seed);
        const std::vector<Memory> blocks = random_blocks(bytes, counts);
        const Memory all = joined(blocks);
        std::vector<Simulated> members;
        std::uint64_t sent = 0;
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          members.push_back({all_gather_script({rank, n()}, counts, cut, algorithm), blocks[rank],
                             random_memory(bytes, all.size())});
          Simulated& member = members.back();
          if (in_place) {
            member.in_place = sum(counts, rank);
            std::copy(blocks[rank].begin(), blocks[rank].end(),
                      member.output.begin() + static_cast<std::ptrdiff_t>(*member.in_place));
          }
          sent += bytes_sent(member.script);
        }
        EXPECT_EQ(sent, all.size() * (n() - 1));
        ASSERT_EQ(Simulation(members, kHash, reads, seed).run(), "");
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          ASSERT_TRUE(members[rank].output == all) << rank;
          ASSERT_TRUE(members[rank].input == blocks[rank]) << rank;
        }
      }
    }
  });
}

TEST_P(ScriptOf, ReduceScatterGivesEachItsBlockAndLeavesTheInput) {
  for_some_counts([&](const auto& counts, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (const auto algorithm : {ReduceScatterAlgorithm::ring, ReduceScatterAlgorithm::direct}) {
      for (const Combining& operation : {kCompose, kHash}) {
        Random bytes(seed);
        std::vector<Memory> operands;
        std::vector<Simulated> members;
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          operands.push_back(random_memory(bytes, sum(counts, n())));
          members.push_back({reduce_scatter_script({rank, n()}, counts, cut, algorithm),
                             operands.back(), random_memory(bytes, counts[rank])});
          ASSERT_LE(members.back().script.scratch_bytes,
                    2 * (*std::max_element(counts.begin(), counts.end()) + 63));
          for (const Step& step : members.back().script.steps) {
            const bool is_scratch = step.to.buffer == Buffer::scratch;
            ASSERT_EQ(is_scratch ? step.to.offset % 64 : 0, 0U);
          }
        }
        ASSERT_EQ(Simulation(members, operation, reads, seed).run(), "");
        for (std::uint32_t rank = 0; rank < n(); ++rank) {
          ASSERT_TRUE(members[rank].input == operands[rank]) << rank;
          const std::uint64_t begin = sum(counts, rank);
          const std::uint64_t end = begin + counts[rank];
          const bool is_ring = algorithm == ReduceScatterAlgorithm::ring;
          if (is_ring || operation.name == kCompose.name) {
            ASSERT_TRUE(members[rank].output == fold(operation, operands,
                                                     ranks_from(is_ring ? rank + 1 : 0, n()), begin,
                                                     end))
                << rank;
          }
        }
      }
    }
  });
}

TEST_P(ScriptOf, GatherAndScatterAreEachOthersReverse) {
  for_some_counts([&](const auto& counts, const Cut& cut, Reads reads, std::uint64_t seed) {
    for (std::uint32_t root = 0; root < n(); ++root) {
      Random bytes(seed);
      const std::vector<Memory> blocks = random_blocks(bytes, counts);
      const Memory all = joined(blocks);
      std::vector<Simulated> gather;
      std::vector<Simulated> scatter;
      for (std::uint32_t rank = 0; rank < n(); ++rank) {
        gather.push_back({gather_script({rank, n()}, root, counts, cut), blocks[rank],
                          rank == root ? random_memory(bytes, all.size()) : Memory{}});
        scatter.push_back({scatter_script({rank, n()}, root, counts, cut),
                           rank == root ? all : Memory{}, random_memory(bytes, counts[rank])});
      }
      ASSERT_EQ(Simulation(gather, kHash, reads, seed).run(), "") << root;
      ASSERT_EQ(Simulation(scatter, kHash, reads, seed).run(), "") << root;
      ASSERT_TRUE(gather[root].output == all) << root;
      ASSERT_TRUE(scatter[root].input == all) << root;
      for (std::uint32_t rank = 0; rank < n(); ++rank) {
        ASSERT_TRUE(gather[rank].input == blocks[rank]) << rank;
        ASSERT_TRUE(scatter[rank].output == blocks[rank]) << rank;
      }
    }
  });
}

TEST_P(ScriptOf, AllToAllTransposesTheBlocks) {
  for (int round = 0; round < 12; ++round) {
    std::vector<std::vector<std::uint64_t>> counts;  // [from][to]
    for (std::uint32_t rank = 0; rank < n(); ++rank) counts.push_back(random_counts());
    const std::uint64_t seed = random()();
    SCOPED_TRACE(say(seed, "round " + std::to_string(round)));
    Random bytes(seed);
    std::vector<std::vector<Memory>> blocks;
    blocks.reserve(counts.size());
    for (const auto& row : counts) blocks.push_back(random_blocks(bytes, row));
    std::vector<Simulated> members;
    std::vector<Memory> expected;
    for (std::uint32_t rank = 0; rank < n(); ++rank) {
      std::vector<std::uint64_t> receive_counts;
      std::vector<Memory> column;
      for (std::uint32_t from = 0; from < n(); ++from) {
        receive_counts.push_back(counts[from][rank]);
        column.push_back(blocks[from][rank]);
      }
      expected.push_back(joined(column));
      members.push_back(
          {all_to_all_script({rank, n()}, counts[rank], receive_counts, {.piece_bytes = 4096}),
           joined(blocks[rank]), Memory(expected.back().size(), 0xEE)});
      EXPECT_EQ(bytes_sent(members.back().script), sum(counts[rank], n()) - counts[rank][rank]);
    }
    ASSERT_EQ(Simulation(members, kHash, kReads[round % 3], seed).run(), "");
    for (std::uint32_t rank = 0; rank < n(); ++rank) {
      ASSERT_TRUE(members[rank].output == expected[rank]) << rank;
      ASSERT_TRUE(members[rank].input == joined(blocks[rank])) << rank;
    }
  }
}

TEST_P(ScriptOf, BarrierHearsOfEverybodyInTheFewestRounds) {
  std::vector<Simulated> members;
  for (std::uint32_t rank = 0; rank < n(); ++rank)
    members.push_back({barrier_script({rank, n()}), {}, {}});
  for (const Simulated& member : members) {
    const auto sends = std::count_if(member.script.steps.begin(), member.script.steps.end(),
                                     [](const Step& step) { return step.kind == Kind::send; });
    EXPECT_EQ(sends, std::bit_width(n() - 1));
    EXPECT_EQ(member.script.steps.size(), 2 * static_cast<std::size_t>(sends));
  }
  ASSERT_EQ(Simulation(members, kHash, Reads::late, n()).run(), "");

  // An absent member holds up all others.
  for (std::uint32_t absent = 0; absent < n() && n() > 1; ++absent) {
    std::vector<Simulated> rest;
    for (std::uint32_t rank = 0; rank < n(); ++rank)
      rest.push_back({barrier_script({rank, n()}), {}, {}});
    rest[absent].script.steps.clear();
    (void)Simulation(rest, kHash, Reads::late, n()).run();
    for (std::uint32_t rank = 0; rank < n(); ++rank) {
      if (rank == absent) continue;
      EXPECT_LT(rest[rank].done, rest[rank].script.steps.size()) << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, ScriptOf, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16),
                         testing::PrintToStringParamName());

/// Counts the takes of at most one piece that no send of the same piece follows.
std::size_t takes_held_back(const Script& script) {
  std::size_t held_back = 0;
  for (std::size_t i = 0; i + 1 < script.steps.size(); ++i) {
    const Step& take = script.steps[i];
    const Step& next = script.steps[i + 1];
    if (take.kind != Kind::reduce && take.kind != Kind::receive) continue;
    if (next.kind != Kind::send || next.from != take.to || next.size_bytes != take.size_bytes)
      ++held_back;
  }
  return held_back;
}

TEST(Script, WhatArrivedIsSentOnBeforeTheNextPieceIsAwaited) {
  const Cut cut{.piece_bytes = 256};
  constexpr std::uint64_t kSize = 16384;  // 64 pieces, 16 in a block of 4
  const std::vector<std::uint64_t> counts(4, kSize / 4);
  EXPECT_EQ(takes_held_back(broadcast_script({1, 4}, 0, kSize, cut, BroadcastAlgorithm::chain)),
            0U);
  // The last step of a ring, a block, has no successor.
  EXPECT_EQ(takes_held_back(all_reduce_script({1, 4}, kSize, cut, AllReduceAlgorithm::ring)), 15U);
  EXPECT_EQ(
      takes_held_back(reduce_scatter_script({1, 4}, counts, cut, ReduceScatterAlgorithm::ring)),
      15U);
  EXPECT_EQ(takes_held_back(reduce_script({1, 4}, 0, kSize, cut, ReduceAlgorithm::ring)), 0U);
  EXPECT_EQ(takes_held_back(all_gather_script({1, 4}, counts, cut, AllGatherAlgorithm::ring)), 15U);
  EXPECT_EQ(takes_held_back(
                all_reduce_script({1, 4}, kSize, cut, AllReduceAlgorithm::recursive_doubling)),
            63U);
  // Rank 2 of a tree of 4 has a child and a parent.
  EXPECT_EQ(takes_held_back(reduce_script({2, 4}, 0, kSize, cut, ReduceAlgorithm::tree)), 0U);
  EXPECT_EQ(takes_held_back(broadcast_script({2, 4}, 0, kSize, cut, BroadcastAlgorithm::tree)), 0U);
}

TEST(Script, BlocksGoingRoundAreNotReceivedOverTheOneThatIsBeingSent) {
  const std::vector<std::uint64_t> counts(5, 1000);
  for (const Script& script :
       {reduce_scatter_script({1, 5}, counts, {}, ReduceScatterAlgorithm::ring),
        reduce_script({1, 5}, 0, 5000, {}, ReduceAlgorithm::ring)}) {
    for (std::size_t i = 1; i < script.steps.size(); ++i) {
      if (script.steps[i].kind == Kind::reduce) {
        EXPECT_NE(script.steps[i].to, script.steps[i - 1].from) << i;
      }
    }
  }
}

TEST(Script, PiecesAreWholeGrains) {
  const Script odd = broadcast_script({0, 2}, 0, 1000, {.grain_bytes = 64, .piece_bytes = 200},
                                      BroadcastAlgorithm::chain);
  ASSERT_EQ(odd.steps.size(), 6U);
  EXPECT_EQ(odd.steps[1].from.offset, 192U);
  EXPECT_EQ(odd.steps[5].size_bytes, 40U);
  const Script tiny = broadcast_script({0, 2}, 0, 100, {.grain_bytes = 64, .piece_bytes = 1},
                                       BroadcastAlgorithm::chain);
  ASSERT_EQ(tiny.steps.size(), 2U);
  EXPECT_EQ(tiny.steps[0].size_bytes, 64U);
}

}  // namespace
}  // namespace tendon::detail
