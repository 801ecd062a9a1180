// SPDX-License-Identifier: Apache-2.0
// Addresses of this host that others can dial, for one that listens at all of its interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::v0::detail {

/// An address of an interface, as the kernel tells it.
struct InterfaceAddress {
  std::string interface;
  std::string host;  ///< as addresses are written: "10.0.0.7", "[2001:db8::1]"
  bool is_up = false;
  bool is_local = false;   ///< of loopback, of this link alone, or none at all
  bool is_bridge = false;  ///< the interface joins others of this host
};
/// A route that leads out by an interface.
struct Route {
  std::string interface;
  bool is_default = false;
  std::uint32_t metric = 0;
};

/// Hosts of addresses that are up and have a route: those of a default route first, by its metric;
/// then others; then those of bridges, which container engines give to many hosts alike. Loopback
/// and link-local ones are left out. Each once.
[[nodiscard]] TENDON_API std::vector<std::string> announceable_hosts(
    const std::vector<InterfaceAddress>& addresses, const std::vector<Route>& routes);

/// Those of this host, for a socket of `family`: AF_INET, or AF_INET6, which takes IPv4 as well
/// where the system lets it. Errors: system; not_supported where no /proc tells of routes.
[[nodiscard]] TENDON_API Result<std::vector<std::string>> announceable_hosts(int family);

/// All addresses of this host's interfaces, those of loopback too. Errors: system.
[[nodiscard]] TENDON_API Result<std::vector<InterfaceAddress>> interface_addresses();

/// Does an IPv6 socket for every interface take IPv4 too?
[[nodiscard]] TENDON_API bool ipv6_takes_ipv4();

/// Routes as /proc/net/route and /proc/net/ipv6_route tell them.
[[nodiscard]] TENDON_API std::vector<Route> parse_ipv4_routes(const std::string& text);
[[nodiscard]] TENDON_API std::vector<Route> parse_ipv6_routes(const std::string& text);

}  // namespace tendon::v0::detail
