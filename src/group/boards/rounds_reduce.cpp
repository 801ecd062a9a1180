// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "group/boards/rounds.hpp"
#include "group/membership/agreement_message.hpp"
#include "group/operands/share.hpp"
#include "group/reduce/reduce.hpp"
#include "memory/copy.hpp"

namespace tendon::v0::detail {
namespace {

/// Bytes of a share that are pulled at once: with those of all members they stay in the caches.
constexpr std::uint64_t kPullBytes = 1ull << 20;
/// Bytes of all members' tensors together. From here on they do not stay in the caches until the
/// next operation, so copies bypass them.
constexpr std::uint64_t kStreamedBytes = 32ull << 20;

/// Sources of a reduction, in the order of ranks.
using Inputs = std::array<const std::byte*, kMaxPlaces>;

// The place of a chunk: in the line when it is small.
std::byte* place_of_mine(Board& board, std::uint64_t round, std::uint64_t size_bytes) {
  return size_bytes <= Board::kSmallBytes ? board.mine(round).small.data()
                                          : board.my_slot(round).data();
}
const std::byte* place_of_theirs(const Board& board, std::uint32_t member, std::uint64_t round,
                                 std::uint64_t size_bytes) {
  return size_bytes <= Board::kSmallBytes ? board.theirs(member, round).small.data()
                                          : board.slot(member, round);
}

/// Every member shows chunk i of all; every member, or the root, reduces it.
class SymmetricReduce final : public Rounds {
 public:
  SymmetricReduce(Flat tensors, ReduceOp op, std::optional<std::uint32_t> root, std::uint32_t self)
      : tensors_(std::move(tensors)),
        op_(op),
        reads_(!root || *root == self),
        rounds_(round_count(tensors_.size_bytes(), Board::kSlotBytes)) {}

  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    const std::uint64_t size = size_of(i);
    tensors_.read(i * Board::kSlotBytes, {place_of_mine(board, round, size), size}, board.hint());
  }
  bool reads(std::uint64_t, std::uint32_t) const override { return reads_; }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (!reads_) return true;
    const std::uint64_t size = size_of(i);
    Inputs from;
    Inputs inputs;
    for (std::uint32_t m = 0; m < board.member_count(); ++m)
      from[m] = place_of_theirs(board, m, round, size);
    tensors_.visit(
        i * Board::kSlotBytes, size,
        [&](std::byte* data, std::uint64_t at, std::uint64_t bytes, DType dtype) {
          for (std::uint32_t m = 0; m < board.member_count(); ++m)
            inputs[m] = m == board.self() ? data : from[m] + at;
          reduce(op_, dtype, {data, bytes}, std::span(inputs).first(board.member_count()));
        });
    return true;
  }
  bool more(std::uint64_t i) const override { return i + 1 < rounds_; }
  void finish() override {
    if (reads_) tensors_.finish();
  }

 private:
  std::uint64_t size_of(std::uint64_t i) const {
    return std::min(Board::kSlotBytes, tensors_.size_bytes() - i * Board::kSlotBytes);
  }
  Flat tensors_;
  const ReduceOp op_;
  const bool reads_;
  const std::uint64_t rounds_;
};

/// For chunk c: in round 2c every member shows the parts that others reduce; in round 2c+1 every
/// member shows the result for its own share.
class DistributedReduce final : public Rounds {
 public:
  DistributedReduce(Flat tensors, ReduceOp op, std::uint32_t members)
      : tensors_(std::move(tensors)),
        op_(op),
        members_(members),
        chunks_(round_count(tensors_.size_bytes(), Board::kSlotBytes)) {}

  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    const std::uint64_t begin = i / 2 * Board::kSlotBytes;
    const std::uint64_t size = size_of(i / 2);
    const Share mine = share_of(board.self(), members_, size);
    std::byte* const slot = board.my_slot(round).data();
    if (i % 2 == 0) {
      tensors_.read(begin, {slot, mine.begin}, board.hint());
      tensors_.read(begin + mine.end, {slot + mine.end, size - mine.end}, board.hint());
      return;
    }
    Inputs inputs;
    tensors_.visit(begin + mine.begin, mine.end - mine.begin,
                   [&](std::byte* data, std::uint64_t at, std::uint64_t bytes, DType dtype) {
                     for (std::uint32_t m = 0; m < members_; ++m)
                       inputs[m] =
                           m == board.self() ? data : board.slot(m, round - 1) + mine.begin + at;
                     reduce(op_, dtype, {slot + at, bytes}, std::span(inputs).first(members_));
                     std::memcpy(data, slot + at, bytes);
                   });
  }
  bool reads(std::uint64_t, std::uint32_t) const override { return true; }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (i % 2 == 0) return true;
    const std::uint64_t begin = i / 2 * Board::kSlotBytes;
    const std::uint64_t size = size_of(i / 2);
    for (std::uint32_t m = 0; m < members_; ++m) {
      const Share share = share_of(m, members_, size);
      if (m == board.self() || share.begin == share.end) continue;
      tensors_.write(begin + share.begin, {board.slot(m, round), share.end - share.begin});
    }
    return true;
  }
  bool more(std::uint64_t i) const override { return i + 1 < 2 * chunks_; }
  void finish() override { tensors_.finish(); }

 private:
  std::uint64_t size_of(std::uint64_t chunk) const {
    return std::min(Board::kSlotBytes, tensors_.size_bytes() - chunk * Board::kSlotBytes);
  }
  Flat tensors_;
  const ReduceOp op_;
  const std::uint32_t members_;
  const std::uint64_t chunks_;
};

/// In round 0 every member names the place of its tensor. A member whose tensor is outside a pool
/// shows its first chunk as well. If none is in a pool, this was round 0 of the staged way, and
/// nothing was lost; if some are, that way begins in round 1.
///
/// If all are in pools, each member reads the others' memory, chunk by chunk, so that reduced data
/// is copied while it is in the caches. After it has seen all in round i, it copies the others'
/// shares of chunk i-1, which all have reduced then. It then reduces its own share of chunk i by
/// reading all. No member overwrites its part of a share before the owner of the share has read it
/// and shown the next round. One round more says that all have copied: the tensors may be changed
/// again.
class PullReduce final : public Rounds {
 public:
  PullReduce(Flat tensors, ReduceOp op, std::uint32_t members, PoolPlace mine, PoolReader read_pool)
      : op_(op),
        members_(members),
        mine_(mine),
        read_pool_(std::move(read_pool)),
        size_bytes_(tensors.size_bytes()),
        chunks_(round_count(size_bytes_, kPullBytes * members)),
        hint_(size_bytes_ >= kStreamedBytes / members ? CopyHint::streaming : CopyHint::cached),
        run_(tensors.runs().size() == 1 ? tensors.runs().front() : Flat::Run{}),
        held_(members) {
    if (run_.data == nullptr) mine_ = {};
    if (members == 2)
      staged_ = std::make_unique<SymmetricReduce>(std::move(tensors), op, std::nullopt, 0);
    else
      staged_ = std::make_unique<DistributedReduce>(std::move(tensors), op, members);
  }

  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (pulls_) return;
    if (i != 0) return staged_->stage(i - skipped_, board, round);
    if (mine_.segment_id == 0) staged_->stage(0, board, round);
    std::memcpy(board.mine(round).small.data(), &mine_, sizeof mine_);
  }
  bool reads(std::uint64_t, std::uint32_t) const override { return true; }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (i == 0) {
      if (!located_) {
        TENDON_TRY(all, locate(board, round));
        if (!all) return false;
      }
      if (!pulls_ && skipped_ != 0) return true;
    }
    if (!pulls_) return staged_->take(i - skipped_, board, round);
    if (i != 0 && i <= chunks_) copy_shares(i - 1, board.self());
    if (i < chunks_) reduce_share(i, board.self());
    // A member that abandoned the operation after the last round may have changed the copied data.
    // Its reason then ends this operation.
    return i <= chunks_ || !board.abandoned(round);
  }
  bool more(std::uint64_t i) const override {
    if (pulls_) return i <= chunks_;
    return i < skipped_ || staged_->more(i - skipped_);
  }
  void finish() override { staged_->finish(); }
  bool shows_tensors() const override { return !pulls_; }

 private:
  Result<bool> locate(Board& board, std::uint64_t round) {
    std::uint32_t pooled = 0;
    for (std::uint32_t m = 0; m < members_; ++m) {
      PoolPlace place;
      std::memcpy(&place, board.theirs(m, round).small.data(), sizeof place);
      if (place.segment_id != 0) ++pooled;
    }
    pulls_ = pooled == members_;
    skipped_ = pooled == 0 ? 0 : 1;
    for (std::uint32_t m = 0; pulls_ && m < members_; ++m) {
      PoolPlace place;
      std::memcpy(&place, board.theirs(m, round).small.data(), sizeof place);
      if (m == board.self()) {
        sources_[m] = run_.data;
        continue;
      }
      TENDON_TRY(memory, read_pool_(m, place, size_bytes_));
      if (memory == nullptr) return false;
      held_[m] = std::move(memory);
      sources_[m] = held_[m].get();
    }
    located_ = true;
    return true;
  }
  // The part of the tensor that is `member`'s share of a chunk.
  Share share(std::uint64_t chunk, std::uint32_t member) const {
    const std::uint64_t begin = chunk * kPullBytes * members_;
    const Share share =
        share_of(member, members_, std::min(kPullBytes * members_, size_bytes_ - begin));
    return {begin + share.begin, begin + share.end};
  }
  void reduce_share(std::uint64_t chunk, std::uint32_t self) {
    const auto [begin, end] = share(chunk, self);
    if (begin == end) return;
    Inputs inputs;
    for (std::uint32_t m = 0; m < members_; ++m) inputs[m] = sources_[m] + begin;
    reduce(op_, run_.dtype, {run_.data + begin, end - begin}, std::span(inputs).first(members_));
  }
  void copy_shares(std::uint64_t chunk, std::uint32_t self) {
    for (std::uint32_t m = 0; m < members_; ++m) {
      const auto [begin, end] = share(chunk, m);
      if (m != self && begin != end)
        copy_bytes({run_.data + begin, end - begin}, {sources_[m] + begin, end - begin}, hint_);
    }
  }

  const ReduceOp op_;
  const std::uint32_t members_;
  PoolPlace mine_;
  const PoolReader read_pool_;
  const std::uint64_t size_bytes_;
  const std::uint64_t chunks_;
  const CopyHint hint_;
  const Flat::Run run_;
  std::unique_ptr<Rounds> staged_;
  std::uint64_t skipped_ = 0;  // rounds before the staged way
  Inputs sources_{};
  std::vector<std::shared_ptr<const std::byte>> held_;  // keeps the sources of the others
  bool located_ = false;
  bool pulls_ = false;
};

/// Part m of every member's slot is for member m.
class ReduceScatter final : public Rounds {
 public:
  ReduceScatter(std::vector<Flat> inputs, Flat output, ReduceOp op, std::uint32_t self)
      : inputs_(std::move(inputs)), output_(std::move(output)), op_(op), self_(self) {
    part_bytes_ = Board::kSlotBytes / inputs_.size() / 64 * 64;
    std::uint64_t largest = 0;
    for (const Flat& block : inputs_) largest = std::max(largest, block.size_bytes());
    rounds_ = round_count(largest, part_bytes_);
  }
  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    for (std::uint32_t m = 0; m < inputs_.size(); ++m) {
      if (m == self_) continue;
      inputs_[m].read(i * part_bytes_,
                      {board.my_slot(round).data() + m * part_bytes_, size_of(i, inputs_[m])},
                      board.hint());
    }
  }
  bool reads(std::uint64_t, std::uint32_t) const override { return true; }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    const std::uint64_t begin = i * part_bytes_;
    Inputs inputs;
    const auto reduce_at = [&](std::byte* data, const std::byte* own, std::uint64_t at,
                               std::uint64_t bytes, DType dtype) {
      for (std::uint32_t m = 0; m < inputs_.size(); ++m)
        inputs[m] = m == self_ ? own : board.slot(m, round) + self_ * part_bytes_ + at;
      reduce(op_, dtype, {data, bytes}, std::span(inputs).first(inputs_.size()));
    };
    // Each may be cut into tensors in its own way.
    output_.visit(begin, size_of(i, output_),
                  [&](std::byte* data, std::uint64_t at, std::uint64_t bytes, DType dtype) {
                    inputs_[self_].visit(begin + at, bytes,
                                         [&](std::byte* own, auto from, auto size, DType) {
                                           reduce_at(data + from, own, at + from, size, dtype);
                                         });
                  });
    return true;
  }
  bool more(std::uint64_t i) const override { return i + 1 < rounds_; }
  void finish() override { output_.finish(); }

 private:
  std::uint64_t size_of(std::uint64_t i, const Flat& block) const {
    const std::uint64_t begin = std::min(block.size_bytes(), i * part_bytes_);
    return std::min(part_bytes_, block.size_bytes() - begin);
  }
  std::vector<Flat> inputs_;
  Flat output_;
  const ReduceOp op_;
  const std::uint32_t self_;
  std::uint64_t part_bytes_ = 0;
  std::uint64_t rounds_ = 0;
};

}  // namespace

std::unique_ptr<Rounds> all_reduce_rounds(Flat tensors, ReduceOp op, std::uint32_t members,
                                          BoardAllReduce way, PoolPlace mine,
                                          PoolReader read_pool) {
  switch (way) {
    case BoardAllReduce::symmetric:
      return std::make_unique<SymmetricReduce>(std::move(tensors), op, std::nullopt, 0);
    case BoardAllReduce::distributed:
      return std::make_unique<DistributedReduce>(std::move(tensors), op, members);
    case BoardAllReduce::pull:
      break;
  }
  return std::make_unique<PullReduce>(std::move(tensors), op, members, mine, std::move(read_pool));
}

std::unique_ptr<Rounds> reduce_rounds(Flat tensors, ReduceOp op, std::uint32_t root,
                                      std::uint32_t self) {
  return std::make_unique<SymmetricReduce>(std::move(tensors), op, root, self);
}

std::unique_ptr<Rounds> reduce_scatter_rounds(std::vector<Flat> inputs, Flat output, ReduceOp op,
                                              std::uint32_t self) {
  return std::make_unique<ReduceScatter>(std::move(inputs), std::move(output), op, self);
}

}  // namespace tendon::v0::detail
