// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/error.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/path.hpp>

namespace tendon::v0::detail {

namespace secure {
struct TlsSession;
}

/// The outcome of one read or write.
struct StreamIo {
  enum class State : std::uint8_t {
    moved,  ///< `bytes` of them; at least one by a read
    later,  ///< none now: the descriptor will become ready
    ended,  ///< read only: the peer ended its output in order, and all of it was read
    lost,   ///< the connection broke: `error`
  };
  State state = State::later;
  std::size_t bytes = 0;
  /// Bytes inside the stream now. After a read: what the next read returns although the descriptor
  /// is not ready. After a write: what was taken and is not yet with the kernel.
  std::size_t inside_bytes = 0;
  int error = 0;  ///< an errno

  [[nodiscard]] static StreamIo moved(std::size_t bytes, std::size_t inside_bytes = 0) {
    return {State::moved, bytes, inside_bytes, 0};
  }
  [[nodiscard]] static StreamIo ended() { return {State::ended, 0, 0, 0}; }
  [[nodiscard]] static StreamIo lost(int error) { return {State::lost, 0, 0, error}; }
};

/// The remote end of a stream, as far as it is known before any byte is exchanged.
struct StreamPeer {
  /// The user at that end, according to this host's kernel; nothing if the stream may lead to
  /// another host.
  std::optional<std::uint32_t> user = std::nullopt;
  PathKind kind = PathKind::tcp;  ///< the path of a link over it: tcp, or routed
  std::string why = {};           ///< for `routed`: the reason, for the link's path
};

/// Ordered bytes in both directions, which carry the handshake, the lanes and links: a socket, or
/// TLS over a socket or a cable. A stream never carries file descriptors.
///
/// An encrypting stream (SecureStream) runs over another one. StreamIo::inside_bytes counts what it
/// has decrypted and not returned, or taken and not sent. Its `ended` is close_notify; a connection
/// that ends without one is `lost`.
///
/// Owns:    the connection.
/// Threads: one thread may read while another writes; fd() and peer() may be called at any time.
/// Errors:  StreamIo::lost, for every later call as well.
/// Blocks:  never.
/// Cost:    one system call a read or write.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  /// Reads into the pieces, in order.
  [[nodiscard]] virtual StreamIo read(std::span<const iovec> pieces) noexcept = 0;
  /// Takes bytes from the pieces, in order. Bytes that stay inside leave with later calls; a call
  /// without pieces only sends those.
  [[nodiscard]] virtual StreamIo write(std::span<const iovec> pieces) noexcept = 0;
  /// Ends this side's output in order. Bytes that were taken before still leave, and reading
  /// continues.
  virtual void end_output() noexcept = 0;
  /// This end reads no more: wipes the keys that reading needs. A stream without TLS has none.
  virtual void end_input() noexcept {}
  /// True if write() would take bytes now. A lost stream returns true: its next write reports the
  /// loss.
  [[nodiscard]] virtual bool has_room() const noexcept;
  /// True if bytes inside the stream wait for room, such as those that a read produced. write()
  /// without pieces sends them.
  [[nodiscard]] virtual bool wants_room() const noexcept { return false; }
  /// After `lost`: the cause in more detail than the errno; nothing if there is no more to say.
  [[nodiscard]] virtual std::optional<Error> why_lost() const { return std::nullopt; }

  /// For epoll: EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP as for a socket.
  [[nodiscard]] virtual int fd() const noexcept = 0;
  [[nodiscard]] virtual const StreamPeer& peer() const noexcept = 0;
  /// The session that the TLS handshake agreed on; null before that and without TLS. It lives as
  /// long as the stream.
  [[nodiscard]] virtual const secure::TlsSession* session() const noexcept { return nullptr; }
  /// True once the peer has begun a TLS handshake and this end has answered it.
  [[nodiscard]] virtual bool has_answered() const noexcept { return false; }
  /// Bytes of the peer's handshake of TLS have arrived, from which a read returns nothing yet.
  [[nodiscard]] virtual bool has_heard() const noexcept { return false; }

  // A link over TLS renews its session with these calls. Streams without TLS ignore them.
  /// Both ends have the new session, with this renewal_key. The peer's next close_notify does not
  /// end its output: it switches to keys that are derived from that key.
  [[nodiscard]] virtual Result<void> expect_switch(Bytes) { return {}; }
  [[nodiscard]] virtual bool expects_switch() const noexcept { return false; }
  /// Sends close_notify and continues under keys of the renewed session, which the peer expects.
  virtual void switch_output() noexcept {}

  /// Declares a peer lost that takes nothing for this long; zero: its silence has no limit. A hint.
  virtual void set_lease(std::chrono::milliseconds) noexcept {}
  /// Reads and drops the input before the stream is destroyed. Closing a socket with unread input
  /// breaks the connection, and the peer would lose what it has not read yet.
  virtual void discard_input() noexcept {}
};

}  // namespace tendon::v0::detail
