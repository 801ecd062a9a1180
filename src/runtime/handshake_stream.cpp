// SPDX-License-Identifier: Apache-2.0
#include "runtime/handshake_stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kPreludeBytes = 16;  // magic, versions, length of the rest: hello.hpp

// The number of bytes that the frame in `frame` still needs before the machine can advance.
std::size_t bytes_wanted(const std::vector<std::byte>& frame) {
  if (frame.size() < kPreludeBytes) return kPreludeBytes - frame.size();
  std::uint32_t rest = 0;
  std::memcpy(&rest, frame.data() + 12, sizeof rest);
  // The machine refuses a length above the cap; read no more than the cap allows.
  const std::size_t total =
      kPreludeBytes + std::min<std::size_t>(rest, kMaxHelloBytes - kPreludeBytes);
  return total - frame.size();
}

}  // namespace

HandshakeStep HandshakeStream::advance() {
  if (has_unsent() || handshake_.state() == HandshakeState::established) {
    HandshakeStep step;
    step.next = handshake_.state() == HandshakeState::established ? Next::done : Next::read;
    step = send(std::move(step));
    if (step.next != Next::read || has_unsent()) return step;
  }
  for (;;) {
    const std::size_t wanted = bytes_wanted(frame_);
    if (wanted == 0) {
      Bytes input(frame_);
      HandshakeStep step = handshake_.on_bytes(input);
      frame_.clear();
      if (step.next == Next::failed) return send(std::move(step));
      if (step.next != Next::read) return step;
      continue;
    }
    std::array<std::byte, kMaxHelloBytes> buffer;
    const iovec piece{buffer.data(), wanted};
    const StreamIo io = stream_->read({&piece, 1});
    if (io.state == StreamIo::State::later) return {};
    if (io.state != StreamIo::State::moved) return on_end();
    has_heard_ = true;
    frame_.insert(frame_.end(), buffer.begin(),
                  buffer.begin() + static_cast<std::ptrdiff_t>(io.bytes));
    if (frame_.size() == kPreludeBytes && bytes_wanted(frame_) != 0) {
      // The magic and versions are checked before the rest arrives, so a stranger is told at once.
      HelloReader glance;
      Bytes input(frame_);
      if (!glance.on_bytes(input)) {
        Bytes again(frame_);
        return send(handshake_.on_bytes(again));
      }
    }
  }
}

std::string_view HandshakeStream::awaits() const noexcept {
  switch (handshake_.state()) {
    case HandshakeState::await_hello:
      return "`hello`";
    case HandshakeState::await_attach:
      return "`attach`";
    case HandshakeState::await_ready:
      return "`ready`";
    default:
      return "handshake";
  }
}

HandshakeStep HandshakeStream::on_end() {
  HandshakeStep step = handshake_.on_end();
  if (auto why = stream_->why_lost()) {
    step.error = std::move(why);
  } else if (!frame_.empty()) {
    // A partial frame may already reveal another protocol, such as an alert of TLS.
    HelloReader glance;
    Bytes input(frame_);
    if (auto read = glance.on_bytes(input); !read) step.error = std::move(read).error();
  }
  return step;
}

HandshakeStep HandshakeStream::reply(const HelloMessage& message) {
  return send(handshake_.reply(message));
}

HandshakeStep HandshakeStream::reject(Error error) {
  return send(handshake_.reject(std::move(error)));
}

// Sends the machine's frame, and sets whether all of it is sent. A failure of the machine stays.
HandshakeStep HandshakeStream::send(HandshakeStep step) {
  unsent_.insert(unsent_.end(), step.send.begin(), step.send.end());
  auto flushed = flush();
  if (step.next == Next::failed) return step;
  if (!flushed) {
    step.next = Next::failed;
    step.error = std::move(flushed).error();
  } else if (has_unsent()) {
    step.next = Next::read;
  }
  return step;
}

Result<void> HandshakeStream::flush() {
  while (has_unsent()) {
    const iovec piece{unsent_.data(), unsent_.size()};
    const std::size_t inside_before = inside_bytes_;
    const StreamIo io = stream_->write({&piece, unsent_.empty() ? 0u : 1u});
    if (io.state == StreamIo::State::lost) {
      // A peer that refuses sends its reason before it closes.
      std::array<std::byte, 1> unread;
      const iovec last{unread.data(), unread.size()};
      (void)stream_->read({&last, 1});
      if (auto why = stream_->why_lost()) return *std::move(why);
      return system_error("context.handshake", "sending a frame of the handshake", io.error);
    }
    if (io.state == StreamIo::State::moved) inside_bytes_ = io.inside_bytes;
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(io.bytes));
    if (io.bytes == 0 && inside_bytes_ >= inside_before) break;
  }
  return {};
}

}  // namespace tendon::v0::detail
