// SPDX-License-Identifier: Apache-2.0
// Addresses of this host that others can dial, for a socket that listens on all interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::v0::detail {

/// An address of an interface, as the kernel reports it.
struct InterfaceAddress {
  std::string interface;
  std::string host;  ///< in the form of addresses: "10.0.0.7", "[2001:db8::1]"
  bool is_up = false;
  bool is_local = false;   ///< of loopback, link-local, or unspecified
  bool is_bridge = false;  ///< the interface joins others of this host
};
/// A route that leaves this host by an interface.
struct Route {
  std::string interface;
  bool is_default = false;
  std::uint32_t metric = 0;
};

/// The hosts of addresses that are up and have a route. Those of a default route are first, by its
/// metric, then others, then those of bridges, because container engines assign the same ones on
/// many hosts. Loopback and link-local addresses are left out, and so are duplicates.
[[nodiscard]] TENDON_API std::vector<std::string> announceable_hosts(
    const std::vector<InterfaceAddress>& addresses, const std::vector<Route>& routes);

/// Those of this host, for a socket of `family`: AF_INET, or AF_INET6, which also takes IPv4 where
/// the system allows it. Errors: system; not_supported where no /proc lists routes.
[[nodiscard]] TENDON_API Result<std::vector<std::string>> announceable_hosts(int family);

/// All addresses of this host's interfaces, including loopback. Errors: system.
[[nodiscard]] TENDON_API Result<std::vector<InterfaceAddress>> interface_addresses();

/// True if an IPv6 socket for all interfaces also takes IPv4.
[[nodiscard]] TENDON_API bool ipv6_takes_ipv4();

/// The routes in the text of /proc/net/route and /proc/net/ipv6_route.
[[nodiscard]] TENDON_API std::vector<Route> parse_ipv4_routes(const std::string& text);
[[nodiscard]] TENDON_API std::vector<Route> parse_ipv6_routes(const std::string& text);

}  // namespace tendon::v0::detail
