// SPDX-License-Identifier: Apache-2.0
#include "worker/block_tables.hpp"

#include <algorithm>
#include <string>
#include <tendon/core/error.hpp>

#include "controller/block_budget.hpp"

namespace engine {

std::uint32_t slot_of(std::span<const SlotRun> runs, std::uint32_t position) {
  for (const SlotRun& run : runs) {
    if (position < run.count) return run.first + position;
    position -= run.count;
  }
  return 0;
}

BlockTables::BlockTables(std::uint32_t blocks) : blocks_(blocks) {
  for (std::uint32_t block = 0; block < blocks; ++block) free_.insert(free_.end(), block);
}

std::uint32_t BlockTables::free_blocks() const { return static_cast<std::uint32_t>(free_.size()); }

std::uint32_t BlockTables::blocks_of(std::uint64_t seq_id) const {
  const auto table = tables_.find(seq_id);
  return table == tables_.end() ? 0 : static_cast<std::uint32_t>(table->second.size());
}

tendon::Result<void> BlockTables::extend(std::uint64_t seq_id, std::uint32_t tokens) {
  const std::uint32_t wanted = blocks_on(0, tokens, 1);
  const std::uint32_t there = blocks_of(seq_id);
  if (wanted <= there) return {};
  if (wanted - there > free_blocks()) {
    return tendon::Error{tendon::ErrorCode::resource_exhausted, "engine.kv_cache",
                         "sequence " + std::to_string(seq_id) + " needs " +
                             std::to_string(wanted - there) + " blocks more, and " +
                             std::to_string(free_blocks()) + " of " + std::to_string(blocks_) +
                             " are free; preempt a sequence first"};
  }
  std::vector<std::uint32_t>& table = tables_[seq_id];
  while (table.size() < wanted) {
    auto next = table.empty() ? free_.end() : free_.find(table.back() + 1);
    if (next == free_.end()) next = free_.begin();
    table.push_back(*next);
    free_.erase(next);
  }
  return {};
}

std::vector<SlotRun> BlockTables::runs(std::uint64_t seq_id, std::uint32_t tokens) const {
  std::vector<SlotRun> found;
  const auto table = tables_.find(seq_id);
  if (table == tables_.end()) return found;
  for (const std::uint32_t block : table->second) {
    if (tokens == 0) break;
    const std::uint32_t first = block * kBlockTokens;
    const std::uint32_t count = std::min(tokens, kBlockTokens);
    if (!found.empty() && found.back().first + found.back().count == first) {
      found.back().count += count;
    } else {
      found.push_back({.first = first, .count = count});
    }
    tokens -= count;
  }
  return found;
}

void BlockTables::free(std::uint64_t seq_id) {
  const auto table = tables_.find(seq_id);
  if (table == tables_.end()) return;
  free_.insert(table->second.begin(), table->second.end());
  tables_.erase(table);
}

void BlockTables::clear() {
  for (const auto& [seq_id, table] : tables_) free_.insert(table.begin(), table.end());
  tables_.clear();
}

}  // namespace engine
