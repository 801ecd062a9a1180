// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/messages_out.hpp"

#include <cstring>
#include <utility>

#include "core/failpoint.hpp"

namespace tendon::v0::detail {
namespace {

// Bytes of the arena, for each reserved place of the ring.
constexpr std::uint64_t kReservedArenaStep = 256;

}  // namespace

MessagesOut::MessagesOut(ShmMemory& memory)
    : memory_(memory), ring_(memory.mine().messages, memory.mine().message_entries) {}

// The arena is a ring of bytes whose consumer is the ring of descriptors: everything before the end
// of the last consumed descriptor is free. A body never wraps.
inline bool MessagesOut::place_inline(Descriptor& descriptor, Room room) {
  const std::uint64_t size = (descriptor.body_bytes() + 63) / 64 * 64;
  const std::uint64_t room_to_end =
      ControlBlock::kArenaBytes - arena_tail_ % ControlBlock::kArenaBytes;
  const std::uint64_t begin = size <= room_to_end ? arena_tail_ : arena_tail_ + room_to_end;
  const std::uint64_t most =
      ControlBlock::kArenaBytes - static_cast<std::uint64_t>(room) * kReservedArenaStep;
  if (begin + size - arena_head_ > most) {
    if (const std::uint64_t consumed = ring_.consumed(); consumed != 0)
      arena_head_ = arena_end_[(consumed - 1) % ControlBlock::kMessageCount];
    if (begin + size - arena_head_ > most) {
      blocked_at_head_ = ring_.seen_head();
      return false;
    }
  }
  descriptor.flags |= Descriptor::kInline;
  descriptor.segment_or_inline_bytes = static_cast<std::uint32_t>(descriptor.body_bytes());
  descriptor.offset = begin % ControlBlock::kArenaBytes;
  arena_tail_ = begin + size;
  return true;
}

// Puts one descriptor into the ring, with its inline body from `op` or `body`, behind the tail that
// the peer sees. Callers flush earlier posted words first.
Result<Sent> MessagesOut::place(Descriptor descriptor, const SendOp* op, Bytes body, Room room) {
  if (broken_) {
    return Error{ErrorCode::protocol_violation, "shm.send",
                 "its counters in shared memory make no sense"};
  }
  const bool is_inline = op != nullptr || !body.empty();
  if (!ring_.has_room(1 + static_cast<std::uint64_t>(room))) {
    if (ring_.corrupt()) broken_ = true;
    blocked_at_head_ = ring_.seen_head();
    return Sent::later;
  }
  if (is_inline) {
    if (!place_inline(descriptor, room)) {
      if (ring_.corrupt()) broken_ = true;
      return Sent::later;
    }
    const MutableBytes place =
        MutableBytes(memory_.mine().arena).subspan(descriptor.offset, descriptor.body_bytes());
    if (op != nullptr)
      copy_body(*op, 0, place);
    else if (!body.empty())
      std::memcpy(place.data(), body.data(), body.size());
  }
  arena_end_[ring_.tail() % ControlBlock::kMessageCount] = arena_tail_;
  (void)ring_.stage(descriptor);  // not full: checked above
  if (TENDON_FAILPOINT("shm.send.before_publish")) {
    ring_.unstage();
    return Error{ErrorCode::internal, "shm.send", "failpoint shm.send.before_publish"};
  }
  if (has_body(descriptor.kind)) {
    add(message_count_, 1);
    add(body_bytes_, descriptor.body_bytes());
  }
  return Sent::done;
}

void MessagesOut::show() {
  ring_.publish();
  (void)TENDON_FAILPOINT("shm.send.after_publish");
}

// Publishes a word of control. False when there is no room; poll() fails a broken link.
bool MessagesOut::publish(const Posted& posted) {
  const auto placed = place(posted.descriptor, nullptr, posted.body, Room::for_control);
  if (!placed) return true;
  if (*placed == Sent::later) return false;
  show_and_wake();
  return true;
}

void MessagesOut::post(const Descriptor& descriptor, Bytes body) {
  Posted posted{descriptor, {body.begin(), body.end()}};
  if (flush() && publish(posted)) return;
  posted_.push_back(std::move(posted));
  posted_bytes_ += sizeof(Posted) + body.size();
}

bool MessagesOut::flush() {
  while (!posted_.empty()) {
    const Posted& next = posted_.front();
    if (!publish(next)) return false;
    posted_bytes_ -= sizeof(Posted) + next.body.size();
    posted_.pop_front();  // published, or the link is broken and poll() fails it
  }
  return true;
}

}  // namespace tendon::v0::detail
