// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/control_out.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {
namespace {

// One contiguous write is cheaper than a gathered one at these sizes.
struct FlatMessage {
  FlatMessage(const Descriptor& descriptor, std::size_t body_bytes)
      : size_bytes(sizeof descriptor + body_bytes) {
    std::memcpy(bytes.data(), &descriptor, sizeof descriptor);
  }
  [[nodiscard]] MutableBytes body() {
    return MutableBytes(bytes).subspan(sizeof(Descriptor), size_bytes - sizeof(Descriptor));
  }
  [[nodiscard]] Bytes all() const { return Bytes(bytes).first(size_bytes); }

  std::size_t size_bytes;
  std::array<std::byte, sizeof(Descriptor) + kMaxInlineBytes> bytes;  // NOLINT: written before use
};

}  // namespace

bool ControlOut::try_send(const SendOp& op) {
  Descriptor descriptor = op.descriptor;
  const std::uint64_t body_bytes = descriptor.body_bytes();
  descriptor.flags |= Descriptor::kInline;
  descriptor.segment_or_inline_bytes = static_cast<std::uint32_t>(body_bytes);
  FlatMessage message(descriptor, body_bytes);
  copy_body(op, 0, message.body());
  const Lock lock(mutex_);
  if (waiting_.size() - written_ > kMaxWaitingBytes) write_waiting();
  if (waiting_.size() - written_ > kMaxWaitingBytes) return false;
  if (said_last_) return false;
  write(message.all());
  return failure() == 0;
}

void ControlOut::post(const Descriptor& descriptor, Bytes inline_body) {
  FlatMessage message(descriptor, std::min<std::size_t>(inline_body.size(), kMaxInlineBytes));
  if (!inline_body.empty()) {
    std::memcpy(message.body().data(), inline_body.data(), message.body().size());
  }
  const Lock lock(mutex_);
  write(message.all());
}

void ControlOut::post_last(const Descriptor& descriptor) {
  const Lock lock(mutex_);
  write(FlatMessage(descriptor, 0).all());
  said_last_ = true;
}

bool ControlOut::flush() {
  if (waiting_bytes() == 0) return false;
  const Lock lock(mutex_);
  const std::size_t before = waiting_bytes();
  write_waiting();
  return waiting_bytes() != before;
}

void ControlOut::stop() {
  const Lock lock(mutex_);
  stream_ = nullptr;
  waiting_.clear();
  written_ = 0;
  waiting_bytes_.store(0, std::memory_order_relaxed);
}

std::size_t ControlOut::hand_over(Bytes bytes) {
  const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  const StreamIo io = stream_->write({&piece, bytes.empty() ? 0u : 1u});
  if (io.state == StreamIo::State::lost) failure_.store(io.error, std::memory_order_relaxed);
  if (io.state != StreamIo::State::later) inside_bytes_ = io.inside_bytes;
  return io.state == StreamIo::State::lost ? bytes.size() : io.bytes;
}

void ControlOut::write(Bytes message) {
  if (stream_ == nullptr || failure() != 0 || said_last_) return;
  if (waiting_.empty()) message = message.subspan(hand_over(message));
  waiting_.insert(waiting_.end(), message.begin(), message.end());
  const std::size_t waits = waiting_.size() - written_ + inside_bytes_;
  if (waits != waiting_bytes()) waiting_bytes_.store(waits, std::memory_order_relaxed);
}

void ControlOut::write_waiting() {
  if (stream_ == nullptr || failure() != 0) return;
  for (;;) {
    const Bytes rest = Bytes(waiting_).subspan(written_);
    if (rest.empty() && inside_bytes_ == 0) break;
    const std::size_t inside_before = inside_bytes_;
    const std::size_t taken = hand_over(rest);
    written_ += taken;
    if (failure() != 0 || (taken == 0 && inside_bytes_ >= inside_before)) break;
  }
  if (written_ == waiting_.size() || failure() != 0) {
    waiting_.clear();
    written_ = 0;
  } else if (written_ > waiting_.size() / 2) {
    // Moves at most as many bytes as were written since the last time.
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(written_));
    written_ = 0;
  }
  waiting_bytes_.store(waiting_.size() - written_ + inside_bytes_, std::memory_order_relaxed);
}

}  // namespace tendon::v0::detail
