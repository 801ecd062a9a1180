// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/control_out.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {
namespace {

// One contiguous write beats a gathered one at these sizes.
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
  const std::size_t before = waiting_.size() - written_;
  write_waiting();
  return waiting_.size() - written_ != before;
}

void ControlOut::stop() {
  const Lock lock(mutex_);
  socket_ = -1;
  waiting_.clear();
  written_ = 0;
  waiting_bytes_.store(0, std::memory_order_relaxed);
}

void ControlOut::write(Bytes message) {
  if (socket_ < 0 || failure() != 0 || said_last_) return;
  if (waiting_.empty()) {
    ssize_t sent = 0;
    do {
      sent = send(socket_, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN) {
      failure_.store(errno, std::memory_order_relaxed);
      return;
    }
    message = message.subspan(static_cast<std::size_t>(std::max<ssize_t>(sent, 0)));
    if (message.empty()) return;
  }
  waiting_.insert(waiting_.end(), message.begin(), message.end());
  waiting_bytes_.store(waiting_.size() - written_, std::memory_order_relaxed);
}

void ControlOut::write_waiting() {
  while (socket_ >= 0 && failure() == 0 && written_ < waiting_.size()) {
    const ssize_t sent = send(socket_, waiting_.data() + written_, waiting_.size() - written_,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      written_ += static_cast<std::size_t>(sent);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      failure_.store(errno, std::memory_order_relaxed);
    }
  }
  if (written_ == waiting_.size() || failure() != 0) {
    waiting_.clear();
    written_ = 0;
  } else if (written_ > waiting_.size() / 2) {
    // Moves at most as many bytes as were written since the last time.
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(written_));
    written_ = 0;
  }
  waiting_bytes_.store(waiting_.size() - written_, std::memory_order_relaxed);
}

}  // namespace tendon::v0::detail
