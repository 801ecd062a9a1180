// SPDX-License-Identifier: Apache-2.0
// The connections that `tendon bench secure` compares, each with the same calls at both ends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/runtime/context.hpp>

#include "cli/bench_credentials.hpp"

namespace tendon::cli {

enum class WayKind : std::uint8_t {
  plaintext,  ///< a pipe
  records,    ///< a pipe in TLS, by Tendon's records
  socket,     ///< a TCP socket, without a pipe
  ssl,        ///< the same, by SSL_read and SSL_write
};
TENDON_WORDS(WayKind, plaintext, records, socket, ssl);

/// The same connection without its protection; `kind` itself if it has none.
[[nodiscard]] inline WayKind unprotected(WayKind kind) {
  if (kind == WayKind::records) return WayKind::plaintext;
  return kind == WayKind::ssl ? WayKind::socket : kind;
}

/// Messages of at least this size are sent as tensors and received into them.
inline constexpr std::uint64_t kTensorBytes = std::uint64_t{1} << 20;

/// One end of a connection. Both ends know which message is next.
///
/// Owns:    the connection.
/// Threads: one at a time.
/// Errors:  those of the connection.
/// Blocks:  until the deadline of a row.
/// Cost:    that of the connection.
class Way {
 public:
  virtual ~Way() = default;

  /// Sets one deadline for all calls that follow, so that none of them reads the clock for it.
  virtual void begin() = 0;
  /// Sends the first bytes of the input.
  [[nodiscard]] virtual Result<void> send(std::uint64_t size_bytes) = 0;
  [[nodiscard]] virtual Result<void> receive(std::uint64_t size_bytes) = 0;
  /// The message that was received last.
  [[nodiscard]] virtual Bytes received() const = 0;
  /// A pipe: its profile, which both ends demand. A socket: the version and suite of TLS, or
  /// "none".
  [[nodiscard]] virtual std::string protection() const = 0;
};

/// The options that both ends share.
struct WayOptions {
  WayKind kind = WayKind::plaintext;
  WaitPolicy policy = WaitPolicy::blocking;
  std::string host;       ///< of the listening end
  CredentialFiles files;  ///< the files that this kind of protection needs
  Storage input;          ///< the bytes to send, as many as the longest message has
};

/// Listens, passes its address to the other end, and waits for that end to connect.
///
/// Owns:    nothing but its options.
/// Threads: one.
/// Errors:  those of the connections, and of `tell`.
/// Blocks:  until the other end has connected, half a minute at most.
/// Cost:    a connection.
class WayMaker {
 public:
  explicit WayMaker(WayOptions options) : options_(std::move(options)) {}

  /// `tell` gets the address.
  template <class Tell>
  [[nodiscard]] Result<std::unique_ptr<Way>> listen(Tell tell) {
    TENDON_TRY(address, bind());
    TENDON_CHECK(tell(address));
    return accept();
  }
  [[nodiscard]] Result<std::unique_ptr<Way>> connect(const std::string& address);

 private:
  struct Place;
  [[nodiscard]] Result<std::string> bind();
  [[nodiscard]] Result<std::unique_ptr<Way>> accept();

  WayOptions options_;
  std::shared_ptr<Place> place_;  // where it listens
};

}  // namespace tendon::cli
