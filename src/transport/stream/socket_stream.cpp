// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/socket_stream.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <limits>
#include <utility>

namespace tendon::v0::detail {
namespace {

msghdr message_of(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return message;
}

// Sets a hint: a socket without the option carries the same bytes, only later.
template <class T>
void set_tcp_option(int socket, int option, T value) {
  (void)setsockopt(socket, IPPROTO_TCP, option, &value, sizeof value);
}

}  // namespace

std::optional<std::uint32_t> peer_user(int socket) noexcept {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return {};
  if (address.ss_family != AF_UNIX) return {};
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return std::numeric_limits<std::uint32_t>::max();
  return credentials.uid;
}

SocketStream::SocketStream(OwnedFd socket)
    : socket_(std::move(socket)), peer_{.user = peer_user(fd())} {
  if (!peer_.user) set_tcp_option(fd(), TCP_NODELAY, 1);
}

StreamIo SocketStream::read(std::span<const iovec> pieces) noexcept {
  msghdr message = message_of(pieces);
  // Uses the cheaper call if nothing can arrive beside the bytes.
  const bool bytes_alone = pieces.size() == 1 && !peer_.user;
  ssize_t received = 0;
  do {
    received = bytes_alone ? recv(fd(), pieces[0].iov_base, pieces[0].iov_len, MSG_DONTWAIT)
                           : recvmsg(fd(), &message, MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  // A peer may pass no descriptors here; the kernel has closed them again.
  if ((message.msg_flags & MSG_CTRUNC) != 0) return StreamIo::lost(EPROTO);
  if (received > 0) return StreamIo::moved(static_cast<std::size_t>(received));
  if (received == 0) return StreamIo::ended();
  return errno == EAGAIN ? StreamIo() : StreamIo::lost(errno);
}

StreamIo SocketStream::write(std::span<const iovec> pieces) noexcept {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  const msghdr message = message_of(pieces);
  ssize_t sent = 0;
  do {
    // One piece needs no list, and small messages are one piece.
    sent = pieces.size() == 1 ? send(fd(), pieces[0].iov_base, pieces[0].iov_len, kFlags)
                              : sendmsg(fd(), &message, kFlags);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return StreamIo::moved(static_cast<std::size_t>(sent));
  return errno == EAGAIN ? StreamIo() : StreamIo::lost(errno);
}

void SocketStream::end_output() noexcept { (void)shutdown(fd(), SHUT_WR); }

// TCP_USER_TIMEOUT also ends a connection whose peer is alive but does not read.
void SocketStream::set_lease(std::chrono::milliseconds lease) noexcept {
  if (peer_.user || peer_.kind == PathKind::routed || lease.count() == 0) return;
  set_tcp_option(fd(), TCP_USER_TIMEOUT, static_cast<unsigned>(lease.count()));
}

void SocketStream::discard_input() noexcept {
  std::array<std::byte, 16384> scrap;  // NOLINT: never read
  for (int round = 0; round < 256; ++round) {
    if (recv(fd(), scrap.data(), scrap.size(), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace tendon::v0::detail
