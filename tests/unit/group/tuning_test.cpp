// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/tuning.hpp"

#include <gmock/gmock.h>

namespace tendon::detail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Hosts apart(std::uint32_t members) { return Hosts::shared_out(members, members); }

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

TEST(Tuning, TheChoiceGoesFromFewMessagesToFewBytes) {
  const Tuning table;
  EXPECT_EQ(choose_all_reduce(table, apart(8), 8), AllReduceAlgorithm::recursive_doubling);
  EXPECT_EQ(choose_all_reduce(table, apart(8), 128 << 10), AllReduceAlgorithm::halving_doubling);
  EXPECT_EQ(choose_all_reduce(table, apart(8), 64 * kMiB), AllReduceAlgorithm::ring);
  EXPECT_EQ(choose_all_reduce(table, apart(2), 128 << 10), AllReduceAlgorithm::recursive_doubling);
  EXPECT_EQ(choose_all_reduce(table, apart(2), 64 * kMiB), AllReduceAlgorithm::ring);
  EXPECT_EQ(choose_reduce(table, apart(8), 8), ReduceAlgorithm::tree);
  EXPECT_EQ(choose_reduce(table, apart(8), 64 * kMiB), ReduceAlgorithm::ring);
  EXPECT_EQ(choose_reduce(table, apart(2), 64 * kMiB), ReduceAlgorithm::tree);
  EXPECT_EQ(choose_broadcast(table, apart(8), 8), BroadcastAlgorithm::tree);
  EXPECT_EQ(choose_broadcast(table, apart(8), 8 * kMiB - 1), BroadcastAlgorithm::tree);
  EXPECT_EQ(choose_broadcast(table, apart(8), 8 * kMiB), BroadcastAlgorithm::chain);
  EXPECT_EQ(choose_all_gather(table, apart(8), 8), AllGatherAlgorithm::bruck);
  EXPECT_EQ(choose_all_gather(table, apart(8), 64 * kMiB), AllGatherAlgorithm::ring);
  EXPECT_EQ(choose_reduce_scatter(table, apart(8), 8), ReduceScatterAlgorithm::direct);
  EXPECT_EQ(choose_reduce_scatter(table, apart(8), 64 * kMiB), ReduceScatterAlgorithm::ring);
}

TEST(Tuning, TwoLevelsAreTakenWhereThereAreTwo) {
  const Tuning table;
  const Hosts hosts = Hosts::shared_out(8, 2);
  const auto all_reduce = [&](std::uint64_t size) {
    EXPECT_EQ(choose_all_reduce(table, hosts, size), AllReduceAlgorithm::two_level);
    return choose_two_level_all_reduce(table, hosts, size);
  };
  EXPECT_EQ(all_reduce(0).shards, 1U);
  EXPECT_EQ(all_reduce(65535).shards, 1U);
  EXPECT_EQ(all_reduce(65536).shards, 2U);
  EXPECT_EQ(all_reduce(64 * kMiB).shards, 4U) << "no more than members of a host";
  EXPECT_EQ(all_reduce(8).between, AllReduceAlgorithm::recursive_doubling);
  EXPECT_EQ(all_reduce(64 * kMiB).between, AllReduceAlgorithm::ring);
  EXPECT_EQ(choose_reduce(table, hosts, 8), ReduceAlgorithm::two_level_tree);
  EXPECT_EQ(choose_reduce(table, hosts, 64 * kMiB), ReduceAlgorithm::two_level_chain);
  EXPECT_EQ(choose_broadcast(table, hosts, 5 * kMiB - 1), BroadcastAlgorithm::two_level_tree);
  EXPECT_EQ(choose_broadcast(table, hosts, 5 * kMiB), BroadcastAlgorithm::two_level_chain);
  EXPECT_EQ(choose_all_gather(table, hosts, 8 * 2048 - 1), AllGatherAlgorithm::bruck);
  EXPECT_EQ(choose_all_gather(table, hosts, 8 * 2048), AllGatherAlgorithm::two_level);
  EXPECT_EQ(choose_reduce_scatter(table, hosts, 8), ReduceScatterAlgorithm::two_level);
  EXPECT_EQ(choose_barrier(table, hosts), BarrierAlgorithm::two_level);
  EXPECT_EQ(choose_barrier(table, apart(8)), BarrierAlgorithm::dissemination);
  EXPECT_EQ(choose_two_level_all_reduce({.shard_min_bytes = 0}, hosts, 8).shards, 4U);

  // Two levels are forced where the hosts have only one.
  const Tuning forced = read_tuning("all_reduce=two_level,broadcast=two_level_chain").tuning;
  EXPECT_EQ(forced_two_level(forced), "all_reduce, broadcast");
  EXPECT_EQ(forced_two_level(table), "");
  for (const Hosts& flat : {apart(8), Hosts::shared_out(8, 1)}) {
    EXPECT_EQ(choose_all_reduce(forced, flat, 8), AllReduceAlgorithm::recursive_doubling);
    EXPECT_EQ(choose_broadcast(forced, flat, 8), BroadcastAlgorithm::tree);
  }
}

TEST(Tuning, OnOneHostPoolMemoryIsReadInPlaceFromItsSizeOn) {
  const Tuning table;
  EXPECT_EQ(choose_board_all_reduce(table, 2, (512 << 10) - 1), BoardAllReduce::symmetric);
  EXPECT_EQ(choose_board_all_reduce(table, 2, 512 << 10), BoardAllReduce::pull);
  EXPECT_EQ(choose_board_all_reduce(table, 4, 174'762), BoardAllReduce::symmetric);
  EXPECT_EQ(choose_board_all_reduce(table, 4, 174'763), BoardAllReduce::distributed);
  EXPECT_EQ(choose_board_all_reduce(table, 4, (256 << 10) - 1), BoardAllReduce::distributed);
  EXPECT_EQ(choose_board_all_reduce(table, 4, 256 << 10), BoardAllReduce::pull);
  EXPECT_EQ(choose_board_all_reduce(table, 100, 5295), BoardAllReduce::symmetric);
  EXPECT_EQ(choose_board_all_reduce(table, 100, 5296), BoardAllReduce::distributed);
  EXPECT_EQ(choose_board_all_reduce(table, 1, 16383), BoardAllReduce::symmetric);
  EXPECT_EQ(choose_board_all_reduce({.pull_min_bytes = 0}, 4, 96), BoardAllReduce::symmetric);
  EXPECT_EQ(choose_board_all_reduce({.pull_min_bytes = 0}, 4, 97), BoardAllReduce::pull);
}

TEST(Tuning, EveryRowIsReadByItsName) {
  EXPECT_EQ(read_tuning("").tuning, Tuning{});
  for (const TuningRow& row : tuning_rows()) {
    const auto read = read_tuning(std::string(row.name) + "=12345");
    Tuning expected;
    expected.*row.size_bytes = 12345;
    EXPECT_EQ(read.tuning, expected) << row.name;
    EXPECT_THAT(read.names, ElementsAre(row.name));
    EXPECT_THAT(read.complaints, IsEmpty());
    EXPECT_FALSE(row.meaning.empty());
  }
}

TEST(Tuning, EveryAlgorithmCanBeForcedAndIsThenTakenAtEverySize) {
  for (const ForcedRow& row : forced_rows({})) {
    EXPECT_EQ(row.forced, "") << row.name;
    for (const std::string_view algorithm : row.algorithms) {
      const auto read = read_tuning(std::string(row.name) + "=" + std::string(algorithm));
      EXPECT_THAT(read.complaints, IsEmpty()) << row.name;
      EXPECT_NE(read.tuning, Tuning{});
      for (const ForcedRow& now : forced_rows(read.tuning))
        EXPECT_EQ(now.forced, now.name == row.name ? algorithm : "") << row.name;
      if (row.name == "board_all_reduce" || row.name == "staging") continue;
      bool found = false;
      for (const Choices& choices :
           choices_of(read.tuning, Reach::links, Hosts::shared_out(8, 2))) {
        if (choices.operation != row.name) continue;
        found = true;
        EXPECT_THAT(choices.by_size,
                    testing::Each(testing::Field(&Choice::algorithm,
                                                 testing::StartsWith(std::string(algorithm)))));
      }
      EXPECT_TRUE(found) << row.name;
    }
  }
  const auto distributed = read_tuning("board_all_reduce=distributed").tuning;
  EXPECT_EQ(choose_board_all_reduce(distributed, 4, 8), BoardAllReduce::distributed);
  const auto pull = read_tuning("board_all_reduce=pull").tuning;
  EXPECT_EQ(choose_board_all_reduce(pull, 4, 97), BoardAllReduce::pull);
  EXPECT_EQ(choose_board_all_reduce(pull, 4, 96), BoardAllReduce::symmetric) << "in the line";
}

TEST(Tuning, WhatCannotBeReadIsLeftOutAndNamed) {
  const auto read = read_tuning(
      "pull_min=4096,pull_min,few_steps_max=-1,pair_max=1k,colour=3,all_reduce=tree,,"
      "broadcast=chain,broadcast=,=5,chain_min=18446744073709551616,symmetric_max=0");
  EXPECT_EQ(read.tuning, (Tuning{.symmetric_max_bytes = 0,
                                 .pull_min_bytes = 4096,
                                 .broadcast = BroadcastAlgorithm::chain}));
  EXPECT_THAT(read.names, ElementsAre("pull_min", "broadcast", "symmetric_max"));
  EXPECT_THAT(
      read.complaints,
      ElementsAre(HasSubstr("'pull_min'; legal for pull_min is a number of bytes"),
                  HasSubstr("'few_steps_max=-1'"), HasSubstr("'pair_max=1k'"),
                  AllOf(HasSubstr("'colour=3'"), HasSubstr("symmetric_max, pull_min"),
                        HasSubstr("all_reduce, reduce")),
                  HasSubstr("legal for all_reduce are recursive_doubling, halving_doubling, ring"),
                  HasSubstr("''"), HasSubstr("'broadcast='"), HasSubstr("'=5'"),
                  HasSubstr("'chain_min=18446744073709551616'")));
}

TEST(Tuning, ADescriptionHasALineForEachOperation) {
  EXPECT_EQ(describe_choices({}, Reach::boards, Hosts::shared_out(2, 1)),
            "  on one host, by shared memory\n"
            "    all_reduce: 8 B symmetric, at 512 KiB pull or symmetric\n"
            "    all others: 8 B rounds\n");
  EXPECT_THAT(describe_choices({}, Reach::links, apart(4)),
              HasSubstr("all_reduce: 8 B recursive_doubling, at 32769 B halving_doubling, "
                        "at 256 KiB ring\n"));
}

}  // namespace
}  // namespace tendon::detail
