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

/// What one read or write did.
struct StreamIo {
  enum class State : std::uint8_t {
    moved,  ///< `bytes` of them; of a read at least one
    later,  ///< none now: the descriptor will say when
    ended,  ///< read only: the peer ended its output in order, and all of it was read
    lost,   ///< the connection broke: `error`
  };
  State state = State::later;
  std::size_t bytes = 0;
  /// Inside the stream now. After a read: what the next one returns although the descriptor has
  /// nothing. After a write: what was taken and is not with the kernel.
  std::size_t inside_bytes = 0;
  int error = 0;  ///< an errno

  [[nodiscard]] static StreamIo moved(std::size_t bytes, std::size_t inside_bytes = 0) {
    return {State::moved, bytes, inside_bytes, 0};
  }
  [[nodiscard]] static StreamIo ended() { return {State::ended, 0, 0, 0}; }
  [[nodiscard]] static StreamIo lost(int error) { return {State::lost, 0, 0, error}; }
};

/// The end that a stream leads to, as far as it is known before a word is said.
struct StreamPeer {
  /// The user there, by the word of this host's kernel; nothing for a stream that may lead to
  /// another host.
  std::optional<std::uint32_t> user = std::nullopt;
  PathKind kind = PathKind::tcp;  ///< of a link over it: tcp, or routed
  std::string why = {};           ///< of `routed`: why it is, for the link's path
};

/// Ordered bytes both ways, which the handshake, the lanes and links speak through: a socket, or
/// TLS over one or a cable. Descriptors of files never travel on one.
///
/// One that encrypts (SecureStream) is over another: what it has decrypted and not handed over, and
/// what it took and could not send yet, are StreamIo::inside_bytes; `ended` is its close_notify,
/// and a connection that ends without one is `lost`.
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
  /// Takes bytes from the pieces, in order. What stays inside leaves with later calls; one without
  /// pieces does nothing else.
  [[nodiscard]] virtual StreamIo write(std::span<const iovec> pieces) noexcept = 0;
  /// Ends this side's output in order. What was taken before still leaves; reading goes on.
  virtual void end_output() noexcept = 0;
  /// This end reads no more: wipes the keys that reading needs. A stream without TLS has none.
  virtual void end_input() noexcept {}
  /// Would write() take anything now? A stream that is lost says so by its next write.
  [[nodiscard]] virtual bool has_room() const noexcept;
  /// Something that a read has made waits for room: write() without pieces sends it.
  [[nodiscard]] virtual bool wants_room() const noexcept { return false; }
  /// After `lost`: more than the errno says; nothing where there is no more.
  [[nodiscard]] virtual std::optional<Error> why_lost() const { return std::nullopt; }

  /// For epoll: EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP as a socket gives them.
  [[nodiscard]] virtual int fd() const noexcept = 0;
  [[nodiscard]] virtual const StreamPeer& peer() const noexcept = 0;
  /// What a handshake of TLS has agreed on; null: there was none yet, or never is one. It lives as
  /// long as the stream.
  [[nodiscard]] virtual const secure::TlsSession* session() const noexcept { return nullptr; }
  /// The peer has begun a handshake of TLS, and this end has answered it.
  [[nodiscard]] virtual bool has_answered() const noexcept { return false; }
  /// Bytes of the peer's handshake of TLS have arrived, from which a read returns nothing yet.
  [[nodiscard]] virtual bool has_heard() const noexcept { return false; }

  // A link over TLS has renewed its session; streams without TLS have nothing to do.
  /// Both ends have the new one, with this renewal_key: the peer's next close_notify is no end, but
  /// its switch to keys that are derived from it.
  [[nodiscard]] virtual Result<void> expect_switch(Bytes) { return {}; }
  [[nodiscard]] virtual bool expects_switch() const noexcept { return false; }
  /// Says close_notify and goes on under keys of the same session. The peer expects it.
  virtual void switch_output() noexcept {}

  /// A peer that takes nothing for so long is lost; zero: it may be silent as long as it likes. A
  /// hint.
  virtual void set_lease(std::chrono::milliseconds) noexcept {}
  /// Reads what came and drops it, before the stream goes: closing a socket with unread input would
  /// break the connection, and the peer would lose what it has not read yet.
  virtual void discard_input() noexcept {}
};

}  // namespace tendon::v0::detail
