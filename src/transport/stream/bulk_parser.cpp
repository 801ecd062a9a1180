// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/bulk_parser.hpp"

#include <algorithm>
#include <cstring>

namespace tendon::v0::detail {

ReadTargets BulkParser::targets() {
  ReadTargets targets;
  placed_bytes_ = 0;
  if (parked_) return targets;
  if (open_ != nullptr) {
    const std::uint64_t left = header_.length_bytes - frame_received_;
    placed_bytes_ = inbound_.place(*open_, header_.offset + frame_received_, left, targets);
    if (placed_bytes_ < left || targets.full()) return targets;
  }
  std::memmove(ahead_.data(), ahead_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  targets.add(ahead_.data() + end_, ahead_.size() - end_);
  return targets;
}

Result<void> BulkParser::on_received(std::size_t size_bytes) {
  const std::uint64_t in_place = std::min<std::uint64_t>(size_bytes, placed_bytes_);
  end_ += size_bytes - in_place;
  if (in_place != 0) advance(in_place);
  return take_ahead();
}

Result<void> BulkParser::resume() {
  if (!parked_) return {};
  parked_ = false;
  return take_ahead();
}

void BulkParser::advance(std::uint64_t size_bytes) {
  frame_received_ += size_bytes;
  OpenTransfer& open = *open_;
  if (frame_received_ == header_.length_bytes) open_ = nullptr;
  inbound_.on_received(open, size_bytes);
}

Result<void> BulkParser::take_ahead() {
  while (begin_ != end_) {
    const std::size_t available = end_ - begin_;
    if (open_ == nullptr) {
      if (available < sizeof header_) return {};
      std::memcpy(&header_, ahead_.data() + begin_, sizeof header_);
      TENDON_TRY(open, inbound_.begin_frame(header_));
      if (open == nullptr) {
        parked_ = true;
        return {};
      }
      begin_ += sizeof header_;
      open_ = open;
      frame_received_ = 0;
      continue;
    }
    ReadTargets places;
    const std::uint64_t wanted =
        std::min<std::uint64_t>(available, header_.length_bytes - frame_received_);
    const std::uint64_t placed =
        inbound_.place(*open_, header_.offset + frame_received_, wanted, places);
    for (std::size_t piece = 0; piece < places.count; ++piece) {
      std::memcpy(places.pieces[piece].iov_base, ahead_.data() + begin_,
                  places.pieces[piece].iov_len);
      begin_ += places.pieces[piece].iov_len;
    }
    advance(placed);
  }
  return {};
}

}  // namespace tendon::v0::detail
