// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "group/boards/rounds.hpp"
#include "group/operands/share.hpp"

namespace tendon::v0::detail {
namespace {

/// Bytes [i * piece, (i + 1) * piece) of a block, cut at its end.
struct Piece {
  std::uint64_t begin;
  std::uint64_t size_bytes;
};
Piece piece_of(std::uint64_t i, std::uint64_t piece_bytes, std::uint64_t size_bytes) {
  const std::uint64_t begin = std::min(size_bytes, i * piece_bytes);
  return {begin, std::min(piece_bytes, size_bytes - begin)};
}

void copy_flat(const Flat& to, const Flat& from, const Piece& piece) {
  from.visit(piece.begin, piece.size_bytes,
             [&](std::byte* data, std::uint64_t at, std::uint64_t bytes, DType) {
               // It is the same memory when a member's own block is in place.
               to.visit(piece.begin + at, bytes,
                        [&](std::byte* there, std::uint64_t offset, std::uint64_t size, DType) {
                          if (there != data + offset) std::memmove(there, data + offset, size);
                        });
             });
}

/// The words of members about a block before they move it.
struct BlockWord {
  std::uint64_t size_bytes = 0;
  std::uint64_t layout = 0;
  friend bool operator==(const BlockWord&, const BlockWord&) = default;

  [[nodiscard]] static BlockWord of(const Flat& block) {
    return {block.size_bytes(), block.layout()};
  }
  [[nodiscard]] static BlockWord read(const std::byte* from) {
    BlockWord word;
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  void write(std::byte* to) const { std::memcpy(to, this, sizeof *this); }
};

// A number that members tell each other in their lines.
void say(Board& board, std::uint64_t round, std::uint64_t number) {
  std::memcpy(board.mine(round).small.data(), &number, sizeof number);
}
std::uint64_t said(const Board& board, std::uint32_t member, std::uint64_t round) {
  std::uint64_t number = 0;
  std::memcpy(&number, board.theirs(member, round).small.data(), sizeof number);
  return number;
}

Error wrong_block(std::uint32_t member, const BlockWord& sent, std::uint32_t self,
                  const BlockWord& room) {
  std::string detail = "rank " + std::to_string(member) + " gives " +
                       std::to_string(sent.size_bytes) + " bytes, rank " + std::to_string(self) +
                       " has room for " + std::to_string(room.size_bytes);
  detail += sent.size_bytes == room.size_bytes
                ? ", of other dtypes or in tensors of other sizes"
                : "; blocks of different sizes are given as a list of tensors, one for each member";
  return Error{ErrorCode::mismatch, "group.board", std::move(detail)};
}

class Barrier final : public Rounds {
 public:
  void stage(std::uint64_t, Board&, std::uint64_t) override {}
  bool reads(std::uint64_t, std::uint32_t) const override { return true; }
  Result<bool> take(std::uint64_t, Board&, std::uint64_t) override { return true; }
  bool more(std::uint64_t) const override { return false; }
};

class Broadcast final : public Rounds {
 public:
  Broadcast(Flat tensors, std::uint32_t root, std::uint32_t self)
      : tensors_(std::move(tensors)),
        root_(root),
        self_(self),
        rounds_(round_count(tensors_.size_bytes(), Board::kSlotBytes)) {}
  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (self_ != root_) return;
    const Piece piece = piece_of(i, Board::kSlotBytes, tensors_.size_bytes());
    tensors_.read(piece.begin, board.my_slot(round).first(piece.size_bytes), board.hint());
  }
  bool reads(std::uint64_t, std::uint32_t member) const override { return member == root_; }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (self_ == root_) return true;
    const Piece piece = piece_of(i, Board::kSlotBytes, tensors_.size_bytes());
    tensors_.write(piece.begin, {board.slot(root_, round), piece.size_bytes});
    return true;
  }
  bool more(std::uint64_t i) const override { return i + 1 < rounds_; }
  void finish() override {
    if (self_ != root_) tensors_.finish();
  }

 private:
  Flat tensors_;
  const std::uint32_t root_;
  const std::uint32_t self_;
  const std::uint64_t rounds_;
};

/// Gathers from all members to all, or to one. In round 0 every member states its size, so that all
/// know the number of rounds, whatever sizes the others have.
class Gather final : public Rounds {
 public:
  Gather(Flat input, std::vector<Flat> outputs, std::optional<std::uint32_t> root,
         std::uint32_t self)
      : input_(std::move(input)), outputs_(std::move(outputs)), root_(root), self_(self) {}
  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (i == 0) BlockWord::of(input_).write(board.mine(round).small.data());
    const Piece piece = piece_of(i, Board::kSlotBytes, input_.size_bytes());
    if (root_ != self_)
      input_.read(piece.begin, board.my_slot(round).first(piece.size_bytes), board.hint());
  }
  bool reads(std::uint64_t i, std::uint32_t) const override { return i == 0 || takes(); }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (i == 0) {
      std::uint64_t largest = 0;
      for (std::uint32_t m = 0; m < board.member_count(); ++m) {
        const auto word = BlockWord::read(board.theirs(m, round).small.data());
        largest = std::max(largest, word.size_bytes);
        if (!takes()) continue;
        if (const auto room = BlockWord::of(outputs_[m]); word != room)
          return wrong_block(misfit_.emplace(m), word, self_, room);
      }
      rounds_ = round_count(largest, Board::kSlotBytes);
    }
    if (!takes()) return true;
    for (std::uint32_t m = 0; m < board.member_count(); ++m) {
      const Piece piece = piece_of(i, Board::kSlotBytes, outputs_[m].size_bytes());
      if (m == self_)
        copy_flat(outputs_[m], input_, piece);
      else
        outputs_[m].write(piece.begin, {board.slot(m, round), piece.size_bytes});
    }
    return true;
  }
  bool more(std::uint64_t i) const override { return i + 1 < rounds_; }
  void finish() override {
    if (!takes()) return;
    for (Flat& output : outputs_) output.finish();
  }

 private:
  bool takes() const { return !root_ || *root_ == self_; }
  Flat input_;
  std::vector<Flat> outputs_;
  const std::optional<std::uint32_t> root_;
  const std::uint32_t self_;
  std::uint64_t rounds_ = 1;
};

/// Scatters: part m of the root's slot is for member m; the root states the number of rounds.
class Scatter final : public Rounds {
 public:
  Scatter(std::vector<Flat> inputs, Flat output, std::uint32_t root, std::uint32_t self)
      : inputs_(std::move(inputs)), output_(std::move(output)), root_(root), self_(self) {}
  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (self_ != root_) return;
    const std::uint64_t part = part_bytes(board);
    if (i == 0) {
      std::uint64_t largest = 0;
      for (const Flat& block : inputs_) largest = std::max(largest, block.size_bytes());
      rounds_ = round_count(largest, part);
    }
    auto& small = board.mine(round).small;
    std::memcpy(small.data(), &rounds_, sizeof rounds_);
    std::byte* const slot = board.my_slot(round).data();
    for (std::uint32_t m = 0; m < inputs_.size(); ++m) {
      const Piece piece = piece_of(i, part, inputs_[m].size_bytes());
      // The block of the part: the root's, so not known otherwise.
      BlockWord::of(inputs_[m]).write(slot + m * (part + kWord));
      if (m != self_)
        inputs_[m].read(piece.begin, {slot + m * (part + kWord) + kWord, piece.size_bytes});
    }
  }
  bool reads(std::uint64_t, std::uint32_t member) const override { return member == root_; }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    const std::uint64_t part = part_bytes(board);
    const Piece piece = piece_of(i, part, output_.size_bytes());
    if (self_ == root_) {
      copy_flat(output_, inputs_[self_], piece);
      return true;
    }
    rounds_ = said(board, root_, round);
    const std::byte* const mine = board.slot(root_, round) + self_ * (part + kWord);
    const auto word = BlockWord::read(mine);
    if (const auto room = BlockWord::of(output_); word != room)
      return wrong_block(misfit_.emplace(root_), word, self_, room);
    output_.write(piece.begin, {mine + kWord, piece.size_bytes});
    return true;
  }
  bool more(std::uint64_t i) const override { return i + 1 < rounds_; }
  void finish() override { output_.finish(); }

 private:
  static constexpr std::uint64_t kWord = 64;
  static std::uint64_t part_bytes(const Board& board) {
    return Board::kSlotBytes / board.member_count() / 64 * 64 - kWord;
  }
  std::vector<Flat> inputs_;
  Flat output_;
  const std::uint32_t root_;
  const std::uint32_t self_;
  std::uint64_t rounds_ = 1;
};

/// Part m of every member's slot is for member m, after the size of that block.
class AllToAll final : public Rounds {
 public:
  AllToAll(std::vector<Flat> inputs, std::vector<Flat> outputs, std::uint32_t self)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)), self_(self) {
    part_bytes_ = Board::kSlotBytes / inputs_.size() / 64 * 64 - kWord;
    std::uint64_t largest = 0;
    for (const Flat& block : inputs_) largest = std::max(largest, block.size_bytes());
    rounds_ = round_count(largest, part_bytes_);
  }
  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    if (i == 0) say(board, round, rounds_);
    for (std::uint32_t m = 0; m < inputs_.size(); ++m) {
      std::byte* const part = board.my_slot(round).data() + m * (part_bytes_ + kWord);
      BlockWord::of(inputs_[m]).write(part);
      const Piece piece = piece_of(i, part_bytes_, inputs_[m].size_bytes());
      if (m != self_) inputs_[m].read(piece.begin, {part + kWord, piece.size_bytes});
    }
  }
  bool reads(std::uint64_t, std::uint32_t) const override { return true; }
  Result<bool> take(std::uint64_t i, Board& board, std::uint64_t round) override {
    for (std::uint32_t m = 0; m < outputs_.size(); ++m) {
      if (i == 0) rounds_ = std::max(rounds_, said(board, m, round));
      const std::byte* const part = board.slot(m, round) + self_ * (part_bytes_ + kWord);
      const auto room = BlockWord::of(outputs_[m]);
      if (const auto word = BlockWord::read(part); word != room)
        return wrong_block(misfit_.emplace(m), word, self_, room);
      const Piece piece = piece_of(i, part_bytes_, room.size_bytes);
      if (m == self_)
        copy_flat(outputs_[m], inputs_[m], piece);
      else
        outputs_[m].write(piece.begin, {part + kWord, piece.size_bytes});
    }
    return true;
  }
  bool more(std::uint64_t i) const override { return i + 1 < rounds_; }
  void finish() override {
    for (Flat& output : outputs_) output.finish();
  }

 private:
  static constexpr std::uint64_t kWord = 64;
  std::vector<Flat> inputs_;
  std::vector<Flat> outputs_;
  const std::uint32_t self_;
  std::uint64_t part_bytes_ = 0;
  std::uint64_t rounds_ = 1;
};

}  // namespace

std::unique_ptr<Rounds> barrier_rounds() { return std::make_unique<Barrier>(); }

std::unique_ptr<Rounds> broadcast_rounds(Flat tensors, std::uint32_t root, std::uint32_t self) {
  return std::make_unique<Broadcast>(std::move(tensors), root, self);
}

std::unique_ptr<Rounds> all_gather_rounds(Flat input, std::vector<Flat> outputs,
                                          std::uint32_t self) {
  return std::make_unique<Gather>(std::move(input), std::move(outputs), std::nullopt, self);
}

std::unique_ptr<Rounds> gather_rounds(Flat input, std::vector<Flat> outputs, std::uint32_t root,
                                      std::uint32_t self) {
  return std::make_unique<Gather>(std::move(input), std::move(outputs), root, self);
}

std::unique_ptr<Rounds> scatter_rounds(std::vector<Flat> inputs, Flat output, std::uint32_t root,
                                       std::uint32_t self) {
  return std::make_unique<Scatter>(std::move(inputs), std::move(output), root, self);
}

std::unique_ptr<Rounds> all_to_all_rounds(std::vector<Flat> inputs, std::vector<Flat> outputs,
                                          std::uint32_t self) {
  return std::make_unique<AllToAll>(std::move(inputs), std::move(outputs), self);
}

}  // namespace tendon::v0::detail
