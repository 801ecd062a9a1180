// SPDX-License-Identifier: Apache-2.0
// Bare sockets that play a peer which does not speak the protocol.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <tendon/session/address.hpp>
#include <vector>

#include "core/fd.hpp"

namespace tendon::test {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

/// Listens on a free port of 127.0.0.1; the kernel completes connections even if nobody calls
/// accept().
class RawListener {
 public:
  RawListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(fd_.get(), 16), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] detail::OwnedFd accept() const {
    return detail::OwnedFd(
        TEMP_FAILURE_RETRY(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  /// Ends accept() in other threads, and stops listening.
  void close() const { shutdown(fd_.get(), SHUT_RDWR); }

 private:
  detail::OwnedFd fd_;
  std::string address_;
};

/// Listens, and neither takes nor refuses a further connection: its backlog is full.
class FullListener {
 public:
  FullListener() {
    EXPECT_EQ(listen(listener_.fd(), 0), 0);
    // The kernel completes one connection more than the backlog; the next ones get no answer.
    for (int i = 0; i < 4; ++i) {
      detail::OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_in peer = loopback(Address::parse(listener_.address()).value().port());
      (void)connect(fd.get(), reinterpret_cast<sockaddr*>(&peer), sizeof peer);
      fill_.push_back(std::move(fd));
    }
  }
  [[nodiscard]] const std::string& address() const { return listener_.address(); }

 private:
  RawListener listener_;
  std::vector<detail::OwnedFd> fill_;
};

/// Connects, even if a signal interrupts the call: the kernel then continues by itself.
inline void connect_whole(int fd, sockaddr_in peer) {
  int result = 0;
  do result = connect(fd, reinterpret_cast<sockaddr*>(&peer), sizeof peer);
  while (result != 0 && (errno == EINTR || errno == EALREADY));
  EXPECT_TRUE(result == 0 || errno == EISCONN)
      << "port " << ntohs(peer.sin_port) << ": " << std::strerror(errno);
}

/// `from`: a source address like "127.0.0.7", instead of 127.0.0.1.
inline detail::OwnedFd connect_raw(std::string_view address, const char* from = nullptr) {
  detail::OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (from != nullptr) {
    sockaddr_in own = loopback(0);
    EXPECT_EQ(inet_pton(AF_INET, from, &own.sin_addr), 1);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  }
  connect_whole(fd.get(), loopback(Address::parse(address).value().port()));
  return fd;
}

/// Writes until the peer hangs up, which is no failure.
inline void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

/// Reads until the peer hangs up; returns all bytes.
inline std::string read_to_end(int fd) {
  std::string all;
  char buffer[4096];
  for (;;) {
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return all;
    all.append(buffer, static_cast<std::size_t>(got));
  }
}

/// Sends `bytes` with `count` copies of `descriptor` beside them.
inline void send_descriptors(int fd, std::string bytes, int descriptor, std::size_t count) {
  iovec io{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 8)> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * count);
  const std::vector<int> all(count, descriptor);
  std::memcpy(CMSG_DATA(header), all.data(), sizeof(int) * count);
  EXPECT_EQ(sendmsg(fd, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

}  // namespace tendon::test
