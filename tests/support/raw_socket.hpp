// SPDX-License-Identifier: Apache-2.0
// Bare sockets that play a peer which does not speak the protocol.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/session/address.hpp>

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
  [[nodiscard]] detail::OwnedFd accept() const {
    return detail::OwnedFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  /// Ends accept() in other threads, and listens no longer.
  void close() const { shutdown(fd_.get(), SHUT_RDWR); }

 private:
  detail::OwnedFd fd_;
  std::string address_;
};

inline detail::OwnedFd connect_raw(std::string_view address) {
  detail::OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in peer = loopback(Address::parse(address).value().port());
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&peer), sizeof peer), 0) << address;
  return fd;
}

/// Writes what the peer takes; a peer that hangs up in the middle is fine.
inline void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

/// Reads until the peer hangs up; answers what came.
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

}  // namespace tendon::test
