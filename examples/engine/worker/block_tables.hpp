// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tendon/core/result.hpp>
#include <vector>

namespace engine {

/// Adjacent slots of the pools: a slot has the keys and values of one token.
struct SlotRun {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const SlotRun&, const SlotRun&) = default;
};

/// The slot of the token at `position`; `runs` cover all tokens up to it or more.
[[nodiscard]] std::uint32_t slot_of(std::span<const SlotRun> runs, std::uint32_t position);

/// The blocks of kBlockTokens slots that each sequence has. A sequence continues in the block after
/// its last one if that is free, so that its runs are long.
///
/// Owns:    a list of blocks for each sequence.
/// Threads: one.
/// Errors:  extend(): resource_exhausted.
/// Blocks:  never.
/// Cost:    a search among the free blocks for each taken block.
class BlockTables {
 public:
  explicit BlockTables(std::uint32_t blocks);

  [[nodiscard]] std::uint32_t free_blocks() const;
  [[nodiscard]] std::uint32_t blocks_of(std::uint64_t seq_id) const;
  /// Makes room for the first `tokens` tokens of a sequence.
  [[nodiscard]] tendon::Result<void> extend(std::uint64_t seq_id, std::uint32_t tokens);
  /// The slots of the first `tokens` tokens, in order; extend() made room for them.
  [[nodiscard]] std::vector<SlotRun> runs(std::uint64_t seq_id, std::uint32_t tokens) const;
  /// Frees its blocks; does nothing for a sequence without blocks.
  void free(std::uint64_t seq_id);
  void clear();

 private:
  std::uint32_t blocks_;
  std::set<std::uint32_t> free_;
  std::map<std::uint64_t, std::vector<std::uint32_t>> tables_;
};

}  // namespace engine
