// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace engine {

/// Tokens of a block of keys and values; BLOCK_SIZE of engine/step.py.
inline constexpr std::uint32_t kBlockTokens = 16;

/// The blocks that the first `length` tokens of a sequence use on one KV rank: block b lies on rank
/// b mod kv_size.
[[nodiscard]] constexpr std::uint32_t blocks_on(std::uint32_t kv_rank, std::uint32_t length,
                                                std::uint32_t kv_size) {
  const std::uint32_t blocks = length / kBlockTokens + (length % kBlockTokens != 0 ? 1 : 0);
  return blocks <= kv_rank ? 0 : (blocks - kv_rank - 1) / kv_size + 1;
}

/// Counts the free blocks of each KV rank. The workers choose the blocks themselves.
///
/// Owns:    one number for each KV rank.
/// Threads: one.
/// Errors:  none; the caller checks has_room() first.
/// Blocks:  never.
/// Cost:    an addition for each KV rank.
class BlockBudget {
 public:
  BlockBudget(std::uint32_t blocks, std::uint32_t kv_size)
      : blocks_(blocks), free_(kv_size, blocks) {}

  /// The blocks that all growing sequences will take, by KV rank.
  class Growth {
   public:
    explicit Growth(const BlockBudget& budget) : taken_(budget.free_.size(), 0) {}
    void add(std::uint32_t from_tokens, std::uint32_t to_tokens) {
      const auto kv_size = static_cast<std::uint32_t>(taken_.size());
      for (std::uint32_t rank = 0; rank < kv_size; ++rank) {
        taken_[rank] += blocks_on(rank, to_tokens, kv_size) - blocks_on(rank, from_tokens, kv_size);
      }
    }

   private:
    friend class BlockBudget;
    std::vector<std::uint32_t> taken_;
  };

  [[nodiscard]] std::uint32_t kv_size() const { return static_cast<std::uint32_t>(free_.size()); }
  [[nodiscard]] bool has_room(const Growth& growth) const {
    for (std::size_t rank = 0; rank < free_.size(); ++rank) {
      if (growth.taken_[rank] > free_[rank]) return false;
    }
    return true;
  }
  [[nodiscard]] bool has_room(std::uint32_t from_tokens, std::uint32_t to_tokens) const {
    Growth growth(*this);
    growth.add(from_tokens, to_tokens);
    return has_room(growth);
  }
  /// True if a sequence of this many tokens fits into an empty cache.
  [[nodiscard]] bool could_hold(std::uint32_t tokens) const {
    return blocks_on(0, tokens, kv_size()) <= blocks_;
  }
  void grow(std::uint32_t from_tokens, std::uint32_t to_tokens) {
    for (std::uint32_t rank = 0; rank < kv_size(); ++rank) {
      free_[rank] -=
          blocks_on(rank, to_tokens, kv_size()) - blocks_on(rank, from_tokens, kv_size());
    }
  }
  void give_back(std::uint32_t tokens) {
    for (std::uint32_t rank = 0; rank < kv_size(); ++rank) {
      free_[rank] += blocks_on(rank, tokens, kv_size());
    }
  }
  /// The sum over all KV ranks.
  [[nodiscard]] std::uint64_t total() const { return std::uint64_t{blocks_} * free_.size(); }
  [[nodiscard]] std::uint64_t used() const {
    return total() - std::accumulate(free_.begin(), free_.end(), std::uint64_t{0});
  }

 private:
  std::uint32_t blocks_;
  std::vector<std::uint32_t> free_;
};

}  // namespace engine
