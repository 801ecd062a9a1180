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
/// It never reads past the frame it needs: what follows the last one stays in the stream, which
/// goes to the link with it.
class HandshakeStream {
 public:
  HandshakeStream(std::unique_ptr<ByteStream> stream, Handshake handshake)
      : stream_(std::move(stream)), handshake_(std::move(handshake)) {}

  /// Sends what waits, then reads what has come. Answers Next::read when the stream must move more;
  /// its end and errors become Next::failed.
  [[nodiscard]] HandshakeStep advance();
  /// Sends `message`. While has_unsent() the answer is Next::read, also for the last frame:
  /// advance() goes on when the stream has room, and says `done`.
  [[nodiscard]] HandshakeStep reply(const HelloMessage& message);
  /// Refuses with a reason, as far as the stream has room; the connection ends.
  HandshakeStep reject(Error error);
  /// A part of a frame is still here or inside the stream. Wait for room then: the peer has nothing
  /// to say before it has heard the frame.
  [[nodiscard]] bool has_unsent() const noexcept {
    return !unsent_.empty() || inside_bytes_ != 0 || (stream_ != nullptr && stream_->wants_room());
  }

  [[nodiscard]] Handshake& handshake() noexcept { return handshake_; }
  /// Null once it was released.
  [[nodiscard]] ByteStream* stream() const noexcept { return stream_.get(); }
  [[nodiscard]] std::unique_ptr<ByteStream> release() { return std::move(stream_); }
  /// The frame that the handshake waits for, for the text of an error: "`ready`".
  [[nodiscard]] std::string_view awaits() const noexcept;
  /// How much of the peer has arrived so far: nothing, a part of a handshake of TLS, or a word.
  [[nodiscard]] Heard heard() const noexcept {
    if (has_heard_) return Heard::word;
    return stream_ != nullptr && stream_->has_heard() ? Heard::handshake : Heard::nothing;
  }

 private:
  [[nodiscard]] HandshakeStep send(HandshakeStep step);
  [[nodiscard]] Result<void> flush();
  /// The stream ended, or broke.
  [[nodiscard]] HandshakeStep on_end();

  std::unique_ptr<ByteStream> stream_;
  Handshake handshake_;
  std::vector<std::byte> frame_;  // as far as it has come
  std::vector<std::byte> unsent_;
  std::size_t inside_bytes_ = 0;  // the stream
  bool has_heard_ = false;
};

}  // namespace tendon::v0::detail
