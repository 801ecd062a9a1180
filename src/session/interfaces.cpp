// SPDX-License-Identifier: Apache-2.0
#include "session/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <tuple>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "session.interfaces";
// Flags of a route: it is up, or it rejects packets, so that it leads nowhere.
constexpr unsigned long kRouteUp = 0x0001;
constexpr unsigned long kRouteReject = 0x0200;

bool leads_out(unsigned long flags, const std::string& interface) {
  return (flags & kRouteUp) != 0 && (flags & kRouteReject) == 0 && interface != "lo";
}

/// An address of a lower rank is announced earlier.
enum class Rank : std::uint8_t { by_default_route, by_route, bridge };

bool is_link_local(const in_addr& host) { return ntohl(host.s_addr) >> 16 == 0xa9fe; }

std::string text_of(int family, const void* host) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, host, text.data(), text.size());
  return family == AF_INET6 ? "[" + std::string(text.data()) + "]" : std::string(text.data());
}

bool is_bridge(const std::string& interface) {
  return access(("/sys/class/net/" + interface + "/bridge").c_str(), F_OK) == 0;
}

InterfaceAddress read(const ifaddrs& entry) {
  InterfaceAddress address{.interface = entry.ifa_name, .host = {}};
  // A further address may have a label after the name: "eth0:1".
  address.interface.resize(std::min(address.interface.find(':'), address.interface.size()));
  constexpr unsigned kUp = IFF_UP | IFF_RUNNING;
  address.is_up = (entry.ifa_flags & kUp) == kUp;
  address.is_local = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  address.is_bridge = is_bridge(address.interface);
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in socket{};
    std::memcpy(&socket, entry.ifa_addr, sizeof socket);
    address.host = text_of(AF_INET, &socket.sin_addr);
    address.is_local |= is_link_local(socket.sin_addr) || socket.sin_addr.s_addr == INADDR_ANY ||
                        ntohl(socket.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  } else {
    sockaddr_in6 socket{};
    std::memcpy(&socket, entry.ifa_addr, sizeof socket);
    address.host = text_of(AF_INET6, &socket.sin6_addr);
    address.is_local |= IN6_IS_ADDR_LINKLOCAL(&socket.sin6_addr) ||
                        IN6_IS_ADDR_LOOPBACK(&socket.sin6_addr) ||
                        IN6_IS_ADDR_UNSPECIFIED(&socket.sin6_addr);
  }
  return address;
}

Result<std::string> read_whole(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf())) {
    return Error{ErrorCode::not_supported, kWhere,
                 "which interfaces have a route is not known without " + path +
                     ": mount /proc, or name an address of this host"};
  }
  return std::move(text).str();
}

using Entries = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Result<Entries> read_entries() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return system_error(kWhere, "getifaddrs", errno);
  return Entries(list, &freeifaddrs);
}

std::vector<InterfaceAddress> addresses_of(const Entries& entries, int family) {
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = entries.get(); entry != nullptr; entry = entry->ifa_next)
    if (entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == family)
      addresses.push_back(read(*entry));
  return addresses;
}

}  // namespace

bool ipv6_takes_ipv4() {
  std::ifstream file("/proc/sys/net/ipv6/bindv6only");
  int only = 0;
  return !(file >> only) || only == 0;
}

Result<std::vector<InterfaceAddress>> interface_addresses() {
  TENDON_TRY(entries, read_entries());
  auto addresses = addresses_of(entries, AF_INET);
  auto six = addresses_of(entries, AF_INET6);
  std::ranges::move(six, std::back_inserter(addresses));
  return addresses;
}

std::vector<Route> parse_ipv4_routes(const std::string& text) {
  std::vector<Route> routes;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // the titles
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    Route route;
    std::string destination;
    std::string gateway;
    unsigned long flags = 0;
    std::string unused;
    std::string mask;
    words >> route.interface >> destination >> gateway >> std::hex >> flags >> std::dec >> unused >>
        unused >> route.metric >> mask;
    if (!words || !leads_out(flags, route.interface)) continue;
    route.is_default = destination == "00000000" && mask == "00000000";
    routes.push_back(std::move(route));
  }
  return routes;
}

std::vector<Route> parse_ipv6_routes(const std::string& text) {
  std::vector<Route> routes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Route route;
    std::string destination;
    std::string length;
    std::string unused;
    unsigned long flags = 0;
    words >> destination >> length >> unused >> unused >> unused >> std::hex >> route.metric >>
        unused >> unused >> flags >> route.interface;
    if (!words || !leads_out(flags, route.interface)) continue;
    // Each interface has routes to its own link and to multicast groups, whatever else it reaches.
    if (destination.starts_with("fe80") || destination.starts_with("ff")) continue;
    route.is_default = length == "00";
    routes.push_back(std::move(route));
  }
  return routes;
}

std::vector<std::string> announceable_hosts(const std::vector<InterfaceAddress>& addresses,
                                            const std::vector<Route>& routes) {
  using Place = std::tuple<Rank, std::uint32_t>;
  std::vector<std::pair<Place, std::string>> found;
  for (const InterfaceAddress& address : addresses) {
    if (!address.is_up || address.is_local) continue;
    std::optional<Place> best;
    for (const Route& route : routes) {
      if (route.interface != address.interface) continue;
      const Rank rank = route.is_default    ? Rank::by_default_route
                        : address.is_bridge ? Rank::bridge
                                            : Rank::by_route;
      const Place place{rank, route.metric};
      if (!best || place < *best) best = place;
    }
    if (best) found.emplace_back(*best, address.host);
  }
  std::ranges::stable_sort(found, {}, &std::pair<Place, std::string>::first);
  std::vector<std::string> hosts;
  for (auto& [place, host] : found)
    if (std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(std::move(host));
  return hosts;
}

Result<std::vector<std::string>> announceable_hosts(int family) {
  const bool six = family == AF_INET6;
  const bool four = !six || ipv6_takes_ipv4();
  TENDON_TRY(entries, read_entries());
  const auto of = [&](int wanted) -> Result<std::vector<std::string>> {
    const auto addresses = addresses_of(entries, wanted);
    TENDON_TRY(text, read_whole(wanted == AF_INET ? "/proc/thread-self/net/route"
                                                  : "/proc/thread-self/net/ipv6_route"));
    return announceable_hosts(
        addresses, wanted == AF_INET ? parse_ipv4_routes(text) : parse_ipv6_routes(text));
  };
  std::vector<std::string> hosts;
  for (const int wanted : {AF_INET, AF_INET6}) {
    if (!(wanted == AF_INET ? four : six)) continue;
    TENDON_TRY(found, of(wanted));
    hosts.insert(hosts.end(), found.begin(), found.end());
  }
  return hosts;
}

}  // namespace tendon::v0::detail
