// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/bulk_out.hpp"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "core/failpoint.hpp"
#include "transport/lent_sample.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::array<std::byte, 32768> kZeros{};  // a few pieces of them fill a frame

// The pieces of one write, far fewer than IOV_MAX: a body in many small pieces is cheaper to copy
// than to list.
class Pieces {
 public:
  [[nodiscard]] bool add(const void* data, std::uint64_t size_bytes) {
    if (size_bytes == 0) return true;
    if (count_ == pieces_.size()) return false;
    pieces_[count_++] = {const_cast<void*>(data), size_bytes};
    return true;
  }
  [[nodiscard]] bool add_zeros(std::uint64_t size_bytes) {
    while (size_bytes > kZeros.size()) {
      if (!add(kZeros.data(), kZeros.size())) return false;
      size_bytes -= kZeros.size();
    }
    return add(kZeros.data(), size_bytes);
  }
  [[nodiscard]] std::span<const iovec> all() const { return {pieces_.data(), count_}; }

 private:
  std::array<iovec, 66> pieces_;  // NOLINT: written before use
  std::size_t count_ = 0;
};

// Lists bytes [from, to) of the body where they lie. False if they lie in too many pieces.
bool list_body(const SendOp& op, std::uint64_t from, std::uint64_t to, Pieces& pieces) {
  const std::uint64_t payload_end = std::min(op.descriptor.payload_bytes, to);
  std::uint64_t at = from;
  if (op.loaned != nullptr && op.parts.empty() && at < payload_end) {
    if (!pieces.add(op.loaned->slot().memory.data() + at, payload_end - at)) return false;
    at = payload_end;
  }
  for (const BodyPart& part : parts_from(op, at)) {
    if (part.offset >= payload_end || at >= payload_end) break;
    if (part.strided != nullptr) return false;
    if (part.offset > at) {
      if (!pieces.add_zeros(part.offset - at)) return false;
      at = part.offset;
    }
    const std::uint64_t end = std::min(part.offset + part.size_bytes, payload_end);
    if (!pieces.add(part.bytes.data() + (at - part.offset), end - at)) return false;
    at = end;
  }
  if (at < payload_end) {
    if (!pieces.add_zeros(payload_end - at)) return false;
    at = payload_end;
  }
  std::uint64_t begin = op.descriptor.payload_bytes;
  for (const Bytes rest : {op.values, op.header}) {
    const std::uint64_t end = std::min(begin + rest.size(), to);
    if (at >= begin && at < end) {
      if (!pieces.add(rest.data() + (at - begin), end - at)) return false;
      at = end;
    }
    begin += rest.size();
  }
  return true;
}

std::uint64_t body_written(std::uint64_t written_bytes) {
  return std::max<std::uint64_t>(written_bytes, sizeof(FrameHeader)) - sizeof(FrameHeader);
}

FrameHeader header_of(const SendOp& op, std::uint64_t offset) {
  FrameHeader header;
  header.pipe = op.descriptor.pipe;
  header.sequence = op.descriptor.sequence;
  header.offset = offset;
  header.length_bytes = FrameCut{op.descriptor.body_bytes()}.length_at(offset);
  return header;
}

}  // namespace

BulkOut::BulkOut(ControlOut& control, std::uint64_t peer_cap_bytes)
    : control_(control), queue_(peer_cap_bytes) {
  lanes_.reserve(kMaxStreamsPerLink);
}

Result<void> BulkOut::add_lane(ByteStream& stream) {
  auto lane = std::make_unique<Lane>(stream);
  TENDON_TRY(buffer, Storage::allocate(kMaxFrameBytes));
  lane->buffer = std::move(buffer);
  lanes_.push_back(std::move(lane));
  return {};
}

void BulkOut::enqueue(SendOp& op) {
  op.done = op.dropped = false;
  queue_.add(op);
  recount();
}

bool BulkOut::lane_waits(std::size_t lane) const noexcept {
  if (lane >= lanes_.size()) return false;
  if (lanes_[lane]->busy || lanes_[lane]->inside_bytes != 0) return true;
  return queue_.has_frame();
}

BulkOut::Progress BulkOut::pump() {
  Progress all;
  if (failure() != 0) return all;
  admit();
  for (const auto& lane : lanes_) {
    if (!lane->busy && !assign(*lane)) {
      all.moved |= lane->inside_bytes != 0 && push_out(*lane);
      continue;
    }
    const Progress one = write(*lane);
    all.moved |= one.moved;
    all.more |= one.more;
  }
  recount();
  return all;
}

// Admits ops as far as the peer has room.
void BulkOut::admit() {
  while (control_.waiting_bytes() <= ControlOut::kMaxWaitingBytes) {
    BulkSend* const next = queue_.admit();
    if (next == nullptr) return;
    if (next->op->lent == nullptr && !stage(*next)) return;
  }
}

// Posts the descriptor. False: the connection has failed.
bool BulkOut::stage(BulkSend& sending) {
  if (TENDON_FAILPOINT("tcp.send.before_descriptor")) {
    failure_.store(ECONNRESET, std::memory_order_relaxed);
    return false;
  }
  control_.post(sending.op->descriptor);
  queue_.stage(sending);
  if (TENDON_FAILPOINT("tcp.send.after_descriptor")) {
    failure_.store(ECONNRESET, std::memory_order_relaxed);
    return false;
  }
  return true;
}

// Begins the turn of a lent message. False: it is not sent.
bool BulkOut::begin(BulkSend& sending) {
  SendOp& op = *sending.op;
  if (op.lent->begin(op)) return stage(sending);
  op.dropped = true;
  forget(op);
  return false;
}

// Returns the next message in turn that has a frame to begin.
BulkSend* BulkOut::next(const Lane& lane) {
  std::optional<bool> has_room;
  for (std::size_t step = 0; step < queue_.size(); ++step) {
    BulkSend& sending = queue_.in_turn(step);
    if (sending.state == BulkSend::State::enqueued) continue;
    if (sending.state == BulkSend::State::admitted) {
      // Skips the system call for a socket that took all of the last write.
      if (!has_room) has_room = lane.took_all || lane.stream.has_room();
      if (!*has_room) continue;
      if (!begin(sending)) {
        if (failure() != 0) return nullptr;
        step = static_cast<std::size_t>(-1);  // the queue is shorter by one: start again
        continue;
      }
    }
    if (sending.has_frame()) {
      queue_.took_turn(step);
      return &sending;
    }
  }
  return nullptr;
}

bool BulkOut::assign(Lane& lane) {
  BulkSend* const sending = next(lane);
  if (sending == nullptr) return false;
  if (sending->begun_bytes < sending->cut.tail_offset()) {
    begin_frame(lane, *sending);
  } else {
    begin_tail(lane, *sending->op);
  }
  return true;
}

void BulkOut::begin_frame(Lane& lane, BulkSend& sending) {
  SendOp& op = *sending.op;
  lane.header = header_of(op, sending.begun_bytes);
  lane.op = &op;
  lane.busy = true;
  lane.written_bytes = 0;
  const std::uint64_t end = lane.header.offset + lane.header.length_bytes;
  Pieces pieces;
  const bool room_for_header = pieces.add(&lane.header, sizeof lane.header);
  const bool listed = room_for_header && list_body(op, lane.header.offset, end, pieces);
  lane.source = listed ? Lane::Source::user : Lane::Source::buffer;
  if (!listed) copy_body(op, lane.header.offset, {lane.buffer.data(), lane.header.length_bytes});
  sending.begun_bytes += lane.header.length_bytes;
}

// From here on the message is done: it arrives completely whatever its sender does.
void BulkOut::begin_tail(Lane& lane, SendOp& op) {
  lane.header = header_of(op, FrameCut{op.descriptor.body_bytes()}.tail_offset());
  lane.op = nullptr;
  lane.busy = true;
  lane.source = Lane::Source::buffer;
  lane.written_bytes = 0;
  copy_body(op, lane.header.offset, {lane.buffer.data(), kTailBytes});
  op.done = true;
  sent_messages_.fetch_add(1, std::memory_order_relaxed);
  sent_bytes_.fetch_add(op.descriptor.body_bytes(), std::memory_order_relaxed);
  forget(op);
}

BulkOut::Progress BulkOut::write(Lane& lane) {
  const std::uint64_t frame_bytes = sizeof(FrameHeader) + lane.header.length_bytes;
  const std::uint64_t left = frame_bytes - lane.written_bytes;
  std::uint64_t offered = left;
  Pieces pieces;
  bool listed = true;
  if (lane.written_bytes < sizeof(FrameHeader)) {
    listed = pieces.add(reinterpret_cast<const std::byte*>(&lane.header) + lane.written_bytes,
                        sizeof(FrameHeader) - lane.written_bytes);
  }
  const std::uint64_t begun = body_written(lane.written_bytes);
  const std::uint64_t rest = lane.header.length_bytes - begun;
  switch (lane.source) {
    case Lane::Source::buffer:
      listed = listed && pieces.add(lane.buffer.data() + begun, rest);
      break;
    case Lane::Source::zeros:
      listed = listed && pieces.add_zeros(rest);
      break;
    case Lane::Source::user:
      listed = listed && list_body(*lane.op, lane.header.offset + begun,
                                   lane.header.offset + lane.header.length_bytes, pieces);
  }
  // Sends the tail together with the last frame before it, which saves a call at either end.
  std::array<std::byte, sizeof(FrameHeader) + kTailBytes> tail;  // NOLINT: written before use
  BulkSend* const own = lane.op != nullptr ? queue_.find(*lane.op) : nullptr;
  if (own != nullptr) {
    const std::uint64_t tail_offset = own->cut.tail_offset();
    if (own->written_bytes + lane.header.length_bytes == tail_offset) {
      const FrameHeader header = header_of(*lane.op, tail_offset);
      std::memcpy(tail.data(), &header, sizeof header);
      copy_body(*lane.op, tail_offset, MutableBytes(tail).subspan(sizeof header));
      if (pieces.add(tail.data(), tail.size())) offered += tail.size();
    }
  }
  if (!listed) return {};  // cannot happen: the whole frame fitted when it was begun

  const std::uint64_t taken = hand_over(lane, pieces.all());
  lane.written_bytes += std::min(taken, left);
  lane.took_all = taken >= left;
  if (taken != 0 && lane.op != nullptr && lane.op->lent != nullptr) lane.op->lent->note_moved();
  if (taken >= left) {
    SendOp* op = lane.op;
    lane.busy = false;
    lane.op = nullptr;
    if (own != nullptr) own->written_bytes += lane.header.length_bytes;
    if (taken > left) {
      begin_tail(lane, *op);
      lane.written_bytes = taken - left;
      lane.busy = taken < offered;
    }
    if (TENDON_FAILPOINT("tcp.send.mid_bulk")) {
      failure_.store(ECONNRESET, std::memory_order_relaxed);
      return {};
    }
  }
  return {.moved = taken != 0, .more = taken == offered};
}

// Returns how many bytes the stream takes now.
std::uint64_t BulkOut::hand_over(Lane& lane, std::span<const iovec> pieces) {
  const StreamIo io = lane.stream.write(pieces);
  if (io.state == StreamIo::State::lost) failure_.store(io.error, std::memory_order_relaxed);
  if (io.state != StreamIo::State::later) lane.inside_bytes = io.inside_bytes;
  return io.bytes;
}

// Sends bytes that the stream took before and that have not left yet.
bool BulkOut::push_out(Lane& lane) {
  const std::size_t before = lane.inside_bytes;
  (void)hand_over(lane, {});
  return lane.inside_bytes != before;
}

void BulkOut::withdraw(SendOp& op) {
  BulkSend* const sending = queue_.find(op);
  if (sending == nullptr) return;
  for (const auto& lane : lanes_) {
    if (lane->op != &op) continue;
    lane->op = nullptr;
    if (lane->written_bytes == 0) {
      lane->busy = false;
      sending->begun_bytes -= lane->header.length_bytes;
    } else if (op.lent != nullptr) {
      lane->source = Lane::Source::zeros;  // no copy: the peer drops them
    } else if (lane->source == Lane::Source::user) {
      const std::uint64_t begun = body_written(lane->written_bytes);
      copy_body(op, lane->header.offset + begun,
                {lane->buffer.data() + begun, lane->header.length_bytes - begun});
      lane->source = Lane::Source::buffer;
    }
  }
  if (sending->state == BulkSend::State::staged) {
    Descriptor abort;
    abort.kind = MessageKind::abort;
    abort.pipe = op.descriptor.pipe;
    abort.sequence = op.descriptor.sequence;
    abort.payload_bytes = sending->begun_bytes;  // the peer drops the rest of these
    control_.post(abort);
  }
  forget(op);
  recount();
}

bool BulkOut::drop(const LentSample& lent) {
  BulkSend* const found = queue_.find(lent);
  if (found == nullptr) return false;
  SendOp& op = *found->op;
  withdraw(op);
  op.dropped = true;
  return true;
}

void BulkOut::forget(const SendOp& op) {
  if (queue_.find(op) == nullptr) return;
  queue_.remove(op);
  if (op.lent != nullptr) op.lent->end();
}

void BulkOut::stop() {
  lanes_.clear();
  for (std::size_t step = 0; step < queue_.size(); ++step)
    if (LentSample* const lent = queue_.in_turn(step).op->lent) lent->end();
  queue_.clear();
  recount();
}

void BulkOut::recount() noexcept {
  std::size_t count = queue_.size();
  for (const auto& lane : lanes_) count += lane->busy || lane->inside_bytes != 0 ? 1 : 0;
  unfinished_.store(count, std::memory_order_relaxed);
}

}  // namespace tendon::v0::detail
