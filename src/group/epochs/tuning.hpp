// SPDX-License-Identifier: Apache-2.0
// The choice of an operation's algorithm: the sizes at which it changes, and its overrides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "group/boards/rounds.hpp"
#include "group/scripts/script.hpp"
#include "memory/copy.hpp"

namespace tendon::v0::detail {

/// The parameters of the choice besides sizes and members; the same on all members. Sizes are those
/// of docs/collectives.md, "Which algorithm"; tuning_rows() explains each.
struct Tuning {
  std::uint64_t symmetric_max_bytes = std::uint64_t{512} << 10;
  std::uint64_t pull_min_bytes = std::uint64_t{1} << 20;
  // A step costs a link some tens of microseconds, in which it moves some tens of KiB.
  std::uint64_t few_steps_max_bytes = std::uint64_t{32} << 10;
  std::uint64_t pair_max_bytes = std::uint64_t{256} << 10;
  std::uint64_t ring_block_min_bytes = std::uint64_t{64} << 10;
  std::uint64_t chain_min_bytes = std::uint64_t{1} << 20;
  std::uint64_t shard_min_bytes = std::uint64_t{32} << 10;
  std::uint64_t two_level_block_min_bytes = std::uint64_t{2} << 10;

  // Forced, whatever the size.
  std::optional<BoardAllReduce> board_all_reduce = {};
  std::optional<CopyHint> staging = {};
  std::optional<AllReduceAlgorithm> all_reduce = {};
  std::optional<ReduceAlgorithm> reduce = {};
  std::optional<BroadcastAlgorithm> broadcast = {};
  std::optional<AllGatherAlgorithm> all_gather = {};
  std::optional<ReduceScatterAlgorithm> reduce_scatter = {};
  std::optional<BarrierAlgorithm> barrier = {};

  /// The tuning of TENDON_COLLECTIVES, read once; unreadable entries are logged.
  [[nodiscard]] static const Tuning& get();
  friend bool operator==(const Tuning&, const Tuning&) = default;
};

/// A size of the table, by the name that TENDON_COLLECTIVES has for it.
struct TuningRow {
  std::string_view name;
  std::uint64_t Tuning::*size_bytes;
  std::string_view meaning;
};
[[nodiscard]] std::span<const TuningRow> tuning_rows();

TENDON_WORDS(BoardAllReduce, symmetric, distributed, pull);
TENDON_WORDS(AllReduceAlgorithm, recursive_doubling, halving_doubling, ring, two_level);
TENDON_WORDS(ReduceAlgorithm, tree, ring, two_level_tree, two_level_chain);
TENDON_WORDS(BroadcastAlgorithm, tree, chain, two_level_tree, two_level_chain);
TENDON_WORDS(AllGatherAlgorithm, bruck, ring, two_level);
TENDON_WORDS(ReduceScatterAlgorithm, direct, ring, two_level);
TENDON_WORDS(BarrierAlgorithm, dissemination, two_level);

/// An operation whose algorithm can be forced, by the name that TENDON_COLLECTIVES has for it.
struct ForcedRow {
  std::string_view name;
  std::vector<std::string_view> algorithms;  ///< of this operation
  std::string_view forced;                   ///< empty: not forced
  std::string_view otherwise;                ///< "by size"
};
[[nodiscard]] std::vector<ForcedRow> forced_rows(const Tuning& tuning);

struct ReadTuning {
  Tuning tuning;
  std::vector<std::string> names;       ///< names that were read, in their order
  std::vector<std::string> complaints;  ///< one for each entry that could not be read
};
/// `name=BYTES` or `operation=algorithm`, with commas between them.
[[nodiscard]] ReadTuning read_tuning(std::string_view text);

// Sizes in bytes: of the reduced or moved data; of all blocks together where there are blocks.
[[nodiscard]] BoardAllReduce choose_board_all_reduce(const Tuning& tuning, std::uint32_t members,
                                                     std::uint64_t size_bytes);
// Over links. Two levels need hosts.are_levels(): if they are forced but impossible, the size
// decides.
[[nodiscard]] AllReduceAlgorithm choose_all_reduce(const Tuning& tuning, const Hosts& hosts,
                                                   std::uint64_t size_bytes);
[[nodiscard]] TwoLevelAllReduce choose_two_level_all_reduce(const Tuning& tuning,
                                                            const Hosts& hosts,
                                                            std::uint64_t size_bytes);
[[nodiscard]] ReduceAlgorithm choose_reduce(const Tuning& tuning, const Hosts& hosts,
                                            std::uint64_t size_bytes);
[[nodiscard]] BroadcastAlgorithm choose_broadcast(const Tuning& tuning, const Hosts& hosts,
                                                  std::uint64_t size_bytes);
[[nodiscard]] AllGatherAlgorithm choose_all_gather(const Tuning& tuning, const Hosts& hosts,
                                                   std::uint64_t size_bytes);
[[nodiscard]] ReduceScatterAlgorithm choose_reduce_scatter(const Tuning& tuning, const Hosts& hosts,
                                                           std::uint64_t size_bytes);
[[nodiscard]] BarrierAlgorithm choose_barrier(const Tuning& tuning, const Hosts& hosts);
/// The operations for which two levels are forced; they do not apply where there are none.
[[nodiscard]] std::string forced_two_level(const Tuning& tuning);

/// How the members reach each other.
enum class Reach : std::uint8_t {
  boards,  ///< all are on one host
  links,
};
struct SizeRange {
  std::uint64_t first_bytes = 8;
  std::uint64_t last_bytes = std::uint64_t{64} << 20;
};
/// The algorithm of an operation from a size on, in words.
struct Choice {
  std::uint64_t from_bytes = 0;
  std::string algorithm;
};
/// The first choice is for the first size of the range; each other one begins where it changes.
struct Choices {
  std::string_view operation;
  std::vector<Choice> by_size;
};
[[nodiscard]] std::vector<Choices> choices_of(const Tuning& tuning, Reach reach, const Hosts& hosts,
                                              const SizeRange& range = {});

/// Describes for people the algorithms of an epoch's operations, by size.
[[nodiscard]] std::string describe_choices(const Tuning& tuning, Reach reach, const Hosts& hosts);

}  // namespace tendon::v0::detail
