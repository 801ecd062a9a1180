// SPDX-License-Identifier: Apache-2.0
#include "group/boards/board.hpp"

#include <string>

#include "memory/claim.hpp"

namespace tendon::v0::detail {

Result<std::unique_ptr<Board>> Board::create(std::uint64_t group, std::uint64_t epoch,
                                             std::uint32_t members, std::uint32_t self,
                                             std::optional<CopyHint> staging) {
  std::unique_ptr<Board> board(new Board(members, self, staging));
  TENDON_TRY(segment, Segment::create(sizeof(Contents), Writers::maker_only));
  TENDON_CHECK(claim(*segment, 0, segment->size_bytes()));
  board->segments_[self] = std::move(segment);
  Header& header = board->contents(self).header;
  header.group = group;
  header.epoch = epoch;
  header.member = self;
  header.member_count = members;
  header.magic = kMagic;
  return board;
}

Result<void> Board::attach(std::uint32_t member, std::shared_ptr<Segment> segment) {
  if (segment->size_bytes() != segments_[self_]->size_bytes()) {
    return Error{ErrorCode::protocol_violation, "group.board",
                 "the board of rank " + std::to_string(member) + " has " +
                     std::to_string(segment->size_bytes()) + " bytes, not " +
                     std::to_string(segments_[self_]->size_bytes())};
  }
  const Header theirs = reinterpret_cast<const Contents*>(segment->data())->header;
  const Header& mine = contents(self_).header;
  if (theirs.magic != kMagic || theirs.group != mine.group || theirs.epoch != mine.epoch ||
      theirs.member != member || theirs.member_count != mine.member_count) {
    return Error{ErrorCode::protocol_violation, "group.board",
                 "the board of rank " + std::to_string(member) + " is of another group or epoch"};
  }
  segments_[member] = std::move(segment);
  return {};
}

}  // namespace tendon::v0::detail
