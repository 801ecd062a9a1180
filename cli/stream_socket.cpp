// SPDX-License-Identifier: Apache-2.0
#include "cli/stream_socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace tendon::cli {
namespace {

constexpr std::string_view kWhere = "cli.bench.secure";
constexpr std::chrono::seconds kHandshakeLimit{30};
// The number of bytes that a link reads at once.
constexpr std::size_t kReadAheadBytes = std::size_t{128} << 10;

using Role = detail::secure::TlsHandshake::Role;

Result<detail::CryptoOwned<SSL_CTX>> make_context(const CredentialFiles& files) {
  const detail::CryptoErrors errors;
  detail::CryptoOwned<SSL_CTX> made(
      SSL_CTX_new_ex(detail::crypto_library(), nullptr, TLS_method()));
  SSL_CTX* const context = made.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384") != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1 ||
      SSL_CTX_use_certificate_chain_file(context, files.cert.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(context, files.cert_key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_load_verify_file(context, files.ca.c_str()) != 1)
    return errors.failed(kWhere, "offer TLS 1.3 by SSL_read and SSL_write");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Without it reading a record takes two system calls.
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAheadBytes);
  return made;
}

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

int timeout_ms(Deadline deadline) {
  constexpr std::chrono::milliseconds kMost = std::chrono::minutes(5);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
  return static_cast<int>(std::min(left, kMost).count());
}

Error too_late() {
  return Error{ErrorCode::timeout, kWhere, "the other end of the socket moved no byte in time"};
}

}  // namespace

Result<StreamSocket> StreamSocket::bare(detail::OwnedFd connected, SocketWait wait) {
  const int one = 1;
  (void)setsockopt(connected.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const int flags = fcntl(connected.get(), F_GETFL);
  if (flags < 0 || fcntl(connected.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return system_error(kWhere, "fcntl(O_NONBLOCK)", errno);
  return StreamSocket(std::move(connected), wait);
}

Result<StreamSocket> StreamSocket::tls(detail::OwnedFd connected, Role role,
                                       const CredentialFiles& files, SocketWait wait) {
  TENDON_TRY(socket, bare(std::move(connected), wait));
  TENDON_TRY(context, make_context(files));
  const detail::CryptoErrors errors;
  socket.context_ = std::move(context);
  socket.ssl_.reset(SSL_new(socket.context_.get()));
  if (socket.ssl_ == nullptr || SSL_set_fd(socket.ssl_.get(), socket.socket_.get()) != 1)
    return errors.failed(kWhere, "put TLS over a socket");
  if (role == Role::client)
    SSL_set_connect_state(socket.ssl_.get());
  else
    SSL_set_accept_state(socket.ssl_.get());
  TENDON_CHECK(socket.shake_hands(kHandshakeLimit));
  return socket;
}

Result<void> StreamSocket::shake_hands(Deadline deadline) {
  for (;;) {
    const detail::CryptoErrors errors;
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return {};
    TENDON_CHECK(explain(result, "the handshake of TLS"));
    TENDON_CHECK(wait_for_events(deadline));
  }
}

std::string StreamSocket::protection() const {
  if (ssl_ == nullptr) return "none";
  return fmt::format("{} {}", SSL_get_version(ssl_.get()), SSL_get_cipher_name(ssl_.get()));
}

Result<void> StreamSocket::send(Bytes bytes, Deadline deadline) {
  while (!bytes.empty()) {
    TENDON_TRY(moved, send_some(bytes));
    bytes = bytes.subspan(moved);
    if (moved == 0) TENDON_CHECK(wait_for_events(deadline));
  }
  return {};
}

Result<void> StreamSocket::receive(MutableBytes bytes, Deadline deadline) {
  while (!bytes.empty()) {
    TENDON_TRY(moved, receive_some(bytes));
    bytes = bytes.subspan(moved);
    if (moved == 0) TENDON_CHECK(wait_for_events(deadline));
  }
  return {};
}

Result<std::size_t> StreamSocket::send_some(Bytes bytes) {
  if (ssl_ == nullptr) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    events_ = POLLOUT;
    if (errno == EAGAIN || errno == EINTR) return 0;
    return system_error(kWhere, "send", errno);
  }
  std::size_t sent = 0;
  const detail::CryptoErrors errors;
  const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &sent);
  return result == 1 ? Result<std::size_t>(sent) : explain(result, "SSL_write");
}

Result<std::size_t> StreamSocket::receive_some(MutableBytes bytes) {
  if (ssl_ == nullptr) {
    const ssize_t received = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (received > 0) return static_cast<std::size_t>(received);
    if (received == 0) return Error{ErrorCode::peer_lost, kWhere, "the other end is gone"};
    events_ = POLLIN;
    if (errno == EAGAIN || errno == EINTR) return 0;
    return system_error(kWhere, "recv", errno);
  }
  std::size_t received = 0;
  const detail::CryptoErrors errors;
  const int result = SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &received);
  return result == 1 ? Result<std::size_t>(received) : explain(result, "SSL_read");
}

Result<std::size_t> StreamSocket::explain(int result, std::string_view what) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      events_ = POLLIN;
      return 0;
    case SSL_ERROR_WANT_WRITE:
      events_ = POLLOUT;
      return 0;
    case SSL_ERROR_SSL:
      return Error{SSL_is_init_finished(ssl_.get()) == 1 ? ErrorCode::peer_lost
                                                         : ErrorCode::authentication_failed,
                   kWhere, fmt::format("{}: {}", what, detail::CryptoErrors().reason())};
    default:
      return Error{ErrorCode::peer_lost, kWhere, fmt::format("{}: the other end is gone", what)};
  }
}

Result<void> StreamSocket::wait_for_events(Deadline deadline) const {
  if (wait_ == SocketWait::spin) return deadline.has_passed() ? too_late() : Result<void>();
  pollfd entry{socket_.get(), events_, 0};
  const int ready = poll(&entry, 1, timeout_ms(deadline));
  if (ready < 0 && errno != EINTR) return system_error(kWhere, "poll", errno);
  return ready == 0 ? too_late() : Result<void>();
}

Result<SocketListener> listen_on(const std::string& host) {
  SocketListener listener{detail::OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
  sockaddr_in address = address_of(host, 0);
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const int fd = listener.fd.get();
  if (fd < 0 || bind(fd, any, length) != 0 || listen(fd, 1) != 0 ||
      getsockname(fd, any, &length) != 0)
    return system_error(kWhere, "listen on " + host, errno);
  listener.port = ntohs(address.sin_port);
  return listener;
}

Result<detail::OwnedFd> accept_one(const SocketListener& listener, Deadline deadline) {
  pollfd entry{listener.fd.get(), POLLIN, 0};
  if (poll(&entry, 1, timeout_ms(deadline)) <= 0) return too_late();
  detail::OwnedFd accepted(accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted) return system_error(kWhere, "accept4", errno);
  return accepted;
}

Result<detail::OwnedFd> dial(const std::string& host, std::uint16_t port) {
  detail::OwnedFd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = address_of(host, port);
  if (!made ||
      connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return system_error(kWhere, "connect to " + host, errno);
  return made;
}

}  // namespace tendon::cli
