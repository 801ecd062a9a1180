// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>
#include <vector>

#include "runtime/heard.hpp"
#include "session/handshake.hpp"
#include "transport/stream/byte_stream.hpp"

namespace tendon::v0::detail {

/// Moves the frames of one handshake over a stream.
///
/// It never reads past the frame it needs. Later bytes stay in the stream, which the link takes
/// over with them.
class HandshakeStream {
 public:
  HandshakeStream(std::unique_ptr<ByteStream> stream, Handshake handshake)
      : stream_(std::move(stream)), handshake_(std::move(handshake)) {}

  /// Sends pending bytes, then reads what has arrived. Returns Next::read when the stream must move
  /// more; its end and errors become Next::failed.
  [[nodiscard]] HandshakeStep advance();
  /// Sends `message`. While has_unsent(), the result is Next::read, also for the last frame:
  /// advance() continues when the stream has room, and returns `done`.
  [[nodiscard]] HandshakeStep reply(const HelloMessage& message);
  /// Refuses with a reason, as far as the stream has room; the connection ends.
  HandshakeStep reject(Error error);
  /// True while a part of a frame is still here or inside the stream. Wait for room then, because
  /// the peer sends nothing before it has received the frame.
  [[nodiscard]] bool has_unsent() const noexcept {
    return !unsent_.empty() || inside_bytes_ != 0 || (stream_ != nullptr && stream_->wants_room());
  }

  [[nodiscard]] Handshake& handshake() noexcept { return handshake_; }
  /// Null after release().
  [[nodiscard]] ByteStream* stream() const noexcept { return stream_.get(); }
  [[nodiscard]] std::unique_ptr<ByteStream> release() { return std::move(stream_); }
  /// The frame that the handshake waits for, for the text of an error: "`ready`".
  [[nodiscard]] std::string_view awaits() const noexcept;
  /// The part of the peer's answer that has arrived so far.
  [[nodiscard]] Heard heard() const noexcept {
    if (has_heard_) return Heard::word;
    return stream_ != nullptr && stream_->has_heard() ? Heard::handshake : Heard::nothing;
  }

 private:
  [[nodiscard]] HandshakeStep send(HandshakeStep step);
  [[nodiscard]] Result<void> flush();
  /// Handles the end or the failure of the stream.
  [[nodiscard]] HandshakeStep on_end();

  std::unique_ptr<ByteStream> stream_;
  Handshake handshake_;
  std::vector<std::byte> frame_;  // the part that has arrived
  std::vector<std::byte> unsent_;
  std::size_t inside_bytes_ = 0;  // unsent bytes inside the stream
  bool has_heard_ = false;
};

}  // namespace tendon::v0::detail
