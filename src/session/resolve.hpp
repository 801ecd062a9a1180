// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/address.hpp>
#include <vector>

namespace tendon::v0::detail {

/// An address in the kernel's form.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  /// The form that Address::parse takes; "?" for an unknown family.
  [[nodiscard]] std::string to_string() const;
  /// True for 127.0.0.0/8, ::1, their mapped forms, and unix sockets: bytes stay on this machine.
  [[nodiscard]] bool is_loopback() const;
  /// True for 169.254.0.0/16, fe80::/10 and mapped forms, which name another host on each network.
  [[nodiscard]] bool is_link_local() const;
};

enum class ResolveFor : std::uint8_t {
  connect,  ///< addresses to try in this order; port 0 is refused
  bind,     ///< addresses to listen on
};

/// The addresses of `address`, best first; never empty. Numbers and unix sockets never block. Names
/// are looked up by getaddrinfo on a separate thread, which continues if the look-up outlives the
/// deadline (at most kMaxPendingLookups, then resource_exhausted). Errors: invalid_argument,
/// timeout, unreachable (the name is unknown; says why).
[[nodiscard]] TENDON_API Result<std::vector<SocketAddress>> resolve(const Address& address,
                                                                    Deadline deadline,
                                                                    ResolveFor purpose);

enum class ConnectionEnd : std::uint8_t { connector, acceptor };

/// The two addresses of a connected TCP socket, the connector's first: "127.0.0.1:40312 >
/// 127.0.0.1:7000". Both ends of one connection have the same text, unless a process between them
/// ends it and makes another. Empty for a socket of another kind.
[[nodiscard]] TENDON_API std::string connection_text(int fd, ConnectionEnd end);

/// The host of a connected socket's own address: "10.0.0.2", "[::1]"; empty for a unix socket.
[[nodiscard]] TENDON_API std::string local_host(int fd);

/// The address of another host, IPv4 in its IPv6 form.
using Source = std::array<std::byte, 16>;
/// The host from which a connected socket was dialled; nothing for loopback, for unix sockets and
/// for any address of this very host.
[[nodiscard]] TENDON_API std::optional<Source> remote_source(int fd);

/// The address of a unix socket: a path, or a name in the abstract namespace with its '@'. Errors:
/// invalid_argument beyond kMaxUnixPathBytes.
[[nodiscard]] Result<SocketAddress> unix_socket_address(std::string_view path);

}  // namespace tendon::v0::detail
