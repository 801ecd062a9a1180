// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/cable.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tendon::v0::detail {

Cable::Cable(const Nonce128& connection, CableEnd end, CableSeal seal, std::uint64_t first_limit)
    : connection_(connection),
      end_(end),
      seal_(std::move(seal)),
      may_send_until_(first_limit),
      limit_(first_limit),
      told_limit_(first_limit) {}

// Sending

std::size_t Cable::may_send() const noexcept {
  if (!may_speak() || (state_ != State::open && state_ != State::ended_there)) return 0;
  return std::min<std::uint64_t>(may_send_until_ - sent_bytes_, kMaxCablePayloadBytes);
}

Result<MutableBytes> Cable::room() {
  if (draft_.size_bytes() == 0) {
    TENDON_TRY(memory, Storage::allocate(kMaxCableFrameBytes));
    draft_ = std::move(memory);
  }
  return MutableBytes(draft_.data() + kHeaderBytes, may_send());
}

Result<Storage> Cable::data(std::size_t size_bytes) {
  sent_bytes_ += size_bytes;
  return sealed(std::exchange(draft_, Storage()), CableFrameKind::data, size_bytes);
}

Result<Storage> Cable::end() {
  state_ = state_ == State::open ? State::ended_here : State::over;
  return bare(CableFrameKind::end);
}

Result<Storage> Cable::cut() {
  state_ = State::over;
  return bare(CableFrameKind::cut);
}

Result<Storage> Cable::bare(CableFrameKind kind) {
  TENDON_TRY(memory, Storage::allocate(kMinCableFrameBytes));
  return sealed(memory, kind, 0);
}

Result<Storage> Cable::sealed(const Storage& frame, CableFrameKind kind,
                              std::size_t payload_bytes) {
  const CableFrameHeader header{.connection = connection_,
                                .sequence = next_sequence_++,
                                .limit = limit_,
                                .kind = kind,
                                .reserved = {}};
  told_limit_ = limit_;
  std::memcpy(frame.data(), &header, kHeaderBytes);
  const std::size_t sealed_bytes = kHeaderBytes + payload_bytes;
  TENDON_TRY(tag, seal_.tag_of(end_, header.sequence, frame.bytes().first(sealed_bytes)));
  std::memcpy(frame.data() + sealed_bytes, tag.data(), tag.size());
  return Storage(frame.owner(), frame.data(), sealed_bytes + tag.size(), Access::read_only);
}

// Receiving

Cable::Verdict Cable::breaks(std::string why) {
  state_ = State::broken;
  why_broken_ = std::move(why);
  return Verdict::breaks_it;
}

Cable::Verdict Cable::hear(const CableFrame& frame) {
  const CableFrameHeader& header = frame.header;
  // Checks the tag first: nothing of a stranger's frame may even be compared.
  if (is_done() || header.connection != connection_ || !seal_.is_right(other_end(end_), frame) ||
      header.sequence < expected_sequence_)
    return Verdict::dropped;
  if (header.sequence > expected_sequence_) {
    return breaks("frames " + std::to_string(expected_sequence_) + " to " +
                  std::to_string(header.sequence - 1) + " were lost on the way");
  }
  ++expected_sequence_;
  may_send_until_ = std::max(may_send_until_, header.limit);
  switch (header.kind) {
    case CableFrameKind::data:
      if (state_ == State::ended_there) return breaks("the peer went on behind its end");
      if (frame.payload.size() > limit_ - heard_bytes_)
        return breaks("the peer sent more than it was granted");
      heard_bytes_ += frame.payload.size();
      break;
    case CableFrameKind::word:
      break;
    case CableFrameKind::end:
      state_ = state_ == State::ended_here ? State::over : State::ended_there;
      break;
    case CableFrameKind::cut:
      if (state_ == State::ended_there) {  // none of its bytes are missing
        state_ = State::over;
        break;
      }
      return breaks("the peer has given it up");
  }
  return Verdict::taken;
}

void Cable::grant(std::uint64_t size_bytes) noexcept {
  limit_ = std::max(limit_, taken_bytes_ + size_bytes);
}

// A limit that the far side has not heard leaves a part of the window idle for a round trip. Words
// thus tell it of small parts of a large window, and of half of a small one.
bool Cable::owes_word() const noexcept {
  if (!may_speak() || (state_ != State::open && state_ != State::ended_here)) return false;
  const std::uint64_t untold = limit_ - told_limit_;
  return untold != 0 && (untold >= kMostUntoldBytes || 2 * untold >= limit_ - heard_bytes_);
}

}  // namespace tendon::v0::detail
