// SPDX-License-Identifier: Apache-2.0
// The peers of `tendon bench secure`: a plain TCP connection, and one with TLS by SSL_read and
// SSL_write. No other command uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/secure/credential_files.hpp>
#include <utility>

#include "core/fd.hpp"
#include "secure/crypto_library.hpp"
#include "secure/tls_handshake.hpp"

namespace tendon::cli {

/// How a socket waits while it can move no byte.
enum class SocketWait : std::uint8_t { spin, sleep };

/// A TCP connection with the socket options of a link. It moves bytes and no messages: both ends
/// know how many follow.
///
/// Owns:    the socket, and OpenSSL's object where there is TLS.
/// Threads: one at a time.
/// Errors:  peer_lost, timeout, authentication_failed, system, internal.
/// Blocks:  until its deadline.
/// Cost:    that of the system calls and of OpenSSL.
class StreamSocket {
 public:
  [[nodiscard]] static Result<StreamSocket> bare(detail::OwnedFd connected, SocketWait wait);
  /// TLS 1.3 in the suite and with the groups of secure links; each end has a certificate of
  /// `files` and demands one that their CA has signed.
  [[nodiscard]] static Result<StreamSocket> tls(detail::OwnedFd connected,
                                                detail::secure::TlsHandshake::Role role,
                                                const CredentialFiles& files, SocketWait wait);

  [[nodiscard]] Result<void> send(Bytes bytes, Deadline deadline);
  /// Fills `bytes`, or returns `timeout`.
  [[nodiscard]] Result<void> receive(MutableBytes bytes, Deadline deadline);
  /// "TLSv1.3 TLS_AES_256_GCM_SHA384", as OpenSSL names it; "none" without TLS.
  [[nodiscard]] std::string protection() const;

 private:
  StreamSocket(detail::OwnedFd socket, SocketWait wait) : socket_(std::move(socket)), wait_(wait) {}
  [[nodiscard]] Result<void> shake_hands(Deadline deadline);
  /// Return 0 if no byte can move now; events_ then says what to wait for.
  [[nodiscard]] Result<std::size_t> send_some(Bytes bytes);
  [[nodiscard]] Result<std::size_t> receive_some(MutableBytes bytes);
  [[nodiscard]] Result<std::size_t> explain(int result, std::string_view what);
  [[nodiscard]] Result<void> wait_for_events(Deadline deadline) const;

  detail::OwnedFd socket_;
  detail::CryptoOwned<SSL_CTX> context_;
  detail::CryptoOwned<SSL> ssl_;  // null: no TLS
  SocketWait wait_;
  short events_ = 0;
};

/// A socket that listens on an IPv4 address.
struct SocketListener {
  detail::OwnedFd fd;
  std::uint16_t port = 0;
};
[[nodiscard]] Result<SocketListener> listen_on(const std::string& host);
[[nodiscard]] Result<detail::OwnedFd> accept_one(const SocketListener& listener, Deadline deadline);
[[nodiscard]] Result<detail::OwnedFd> dial(const std::string& host, std::uint16_t port);

}  // namespace tendon::cli
