// SPDX-License-Identifier: Apache-2.0
#include "group/membership/listening.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "group.join";
constexpr std::string_view kOtherwise = "the option `listen` or TENDON_LISTEN says otherwise";

struct HostAndPort {
  std::string host;  // "10.0.0.2", "[::1]"
  std::string port;
};

HostAndPort parts_of(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  return {std::string(address.substr(0, colon)), std::string(address.substr(colon + 1))};
}

// Peers are told of interfaces without the "%eth0" of a link-local address.
std::string without_scope(std::string host) {
  const std::size_t scope = host.find('%');
  if (scope != std::string::npos) host.erase(scope, host.size() - 1 - scope);
  return host;
}

std::string host_of(const SocketAddress& address) { return parts_of(address.to_string()).host; }

std::string at(const std::string& host, const std::string& port) { return host + ":" + port; }
std::string at(const std::string& host, std::uint16_t port) {
  return at(host, std::to_string(port));
}

bool is_loopback(const std::string& host) {
  const auto address = Address::parse(host + ":0");
  return address && address->is_loopback_literal();
}

void add(std::vector<std::string>& addresses, std::string one) {
  if (addresses.size() < kMostListenAddresses &&
      std::ranges::find(addresses, one) == addresses.end())
    addresses.push_back(std::move(one));
}

std::vector<std::string> at_all_addresses(const OwnAddresses& own, bool prefers_ipv6,
                                          std::uint16_t port) {
  const bool has_ipv6 =
      prefers_ipv6 || std::ranges::any_of(own.interfaces, [](const InterfaceAddress& one) {
        return one.is_up && !one.is_local && one.host.starts_with('[');
      });
  if (!has_ipv6) return {at("0.0.0.0", port)};
  if (own.ipv6_takes_ipv4) return {at("[::]", port)};
  return {at("0.0.0.0", port), at("[::]", port)};
}

// Loopback as the rendezvous names it, for others of this host look it up as this process does.
std::string loopback_of(const std::optional<Resolved>& rendezvous) {
  if (rendezvous) {
    for (const SocketAddress& one : rendezvous->found)
      if (one.is_loopback()) return host_of(one);
  }
  return "127.0.0.1";
}

// The addresses at which it listens if nobody said anything.
Listening by_rendezvous(const ListenWish& wish, const std::optional<Resolved>& rendezvous,
                        const OwnAddresses& own) {
  Listening listening;
  const std::uint16_t port = rendezvous ? rendezvous->address.port() : 0;
  if (wish.profile == Profile::local || wish.one_host) {
    const std::string host = loopback_of(rendezvous);
    listening.addresses = {at(host, port)};
    const std::string why =
        wish.profile == Profile::local
            ? "profile 'local' keeps the group to this host; ask for "
              "'plaintext' by name to span hosts"
            : *wish.one_host + " says that all ranks are on this host; " + std::string(kOtherwise);
    if (!rendezvous || !rendezvous->address.is_loopback_literal())
      listening.hint = "rank 0 listens at loopback, as " + why;
    return listening;
  }
  std::string seen;
  bool prefers_ipv6 = false;
  if (rendezvous) {
    for (const SocketAddress& one : rendezvous->found) {
      if (own.has(one) && !one.is_loopback()) add(listening.addresses, one.to_string());
      seen += (seen.empty() ? "" : ", ") + host_of(one);
      prefers_ipv6 |= one.family() == AF_INET6 && rendezvous->found.size() == 1;
    }
  }
  if (!listening.addresses.empty()) return listening;
  listening.addresses = at_all_addresses(own, prefers_ipv6, port);
  if (!rendezvous) {
    listening.why_all = "a store names no address of it";
  } else if (!is_of_all_interfaces(rendezvous->address.to_string())) {  // means all interfaces
    listening.why_all =
        "the rendezvous '" + rendezvous->address.to_string() + "' " +
        (seen.empty() ? std::string("cannot be looked up here")
                      : "is here " + seen + ", no address of an interface that leads elsewhere");
  }
  return listening;
}

// True if `address` also reaches what `told` means.
bool covers(const Resolved& told, const SocketAddress& address) {
  return std::ranges::any_of(told.found, [&](const SocketAddress& one) {
    return is_of_all_interfaces(one.to_string()) || host_of(one) == host_of(address);
  });
}

}  // namespace

bool OwnAddresses::has(const SocketAddress& address) const {
  const std::string host = without_scope(host_of(address));
  return std::ranges::any_of(interfaces,
                             [&](const InterfaceAddress& one) { return one.host == host; });
}

bool is_of_all_interfaces(std::string_view address) {
  const std::string host = parts_of(address).host;
  return host == "0.0.0.0" || host == "[::]";
}

Result<Listening> listening_of_rank0(const ListenWish& wish,
                                     const std::optional<Resolved>& rendezvous,
                                     const OwnAddresses& own) {
  if (rendezvous && rendezvous->address.kind() == AddressKind::unix_path)
    return Listening{{rendezvous->address.to_string()}, {}, {}};
  if (!wish.told) return by_rendezvous(wish, rendezvous, own);
  const Address& told = wish.told->address;
  if (!rendezvous) return Listening{{told.to_string()}, {}, {}};
  if (told.kind() == AddressKind::unix_path) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 wish.told_by + " is '" + told.to_string() +
                     "', and the others look for rank 0 at '" + rendezvous->address.to_string() +
                     "', where no unix socket is found; name a host, or let the rendezvous be the "
                     "socket"};
  }
  // Other members dial that port, whatever stands between them and this host.
  const std::uint16_t port =
      rendezvous->address.port() != 0 ? rendezvous->address.port() : told.port();
  const std::string host = parts_of(told.to_string()).host;
  Listening listening{{at(host, port)}, {}, {}};
  const bool is_kept_in = std::ranges::all_of(
      wish.told->found, [](const SocketAddress& one) { return one.is_loopback(); });
  for (const SocketAddress& one : rendezvous->found) {
    if (one.is_loopback() || !own.has(one) || covers(*wish.told, one)) continue;
    if (!is_kept_in) {
      add(listening.addresses, one.to_string());
    } else if (listening.hint.empty()) {
      listening.hint = "rank 0 listens at loopback, as " + wish.told_by + " says, and not at " +
                       one.to_string() + ", where others look for it";
    }
  }
  return listening;
}

Listening listening_of_member(const ListenWish& wish, const std::string& towards_rank0,
                              const OwnAddresses& own) {
  if (wish.told) return {{wish.told->address.to_string()}, {}, {}};
  if (wish.profile == Profile::local || wish.one_host || !is_loopback(towards_rank0))
    return {{at(towards_rank0, 0)}, {}, {}};
  Listening listening{at_all_addresses(own, towards_rank0.starts_with('['), 0), {}, {}};
  listening.why_all = "it shares a host with rank 0, and others may be elsewhere";
  return listening;
}

std::string all_addresses_line(std::string_view member, std::span<const std::string> bound,
                               std::string_view why_all) {
  return std::string(member) + " listens at all addresses of this host (" + join_addresses(bound) +
         "), unprotected, as profile 'plaintext' allows: " + std::string(why_all) + "; " +
         std::string(kOtherwise);
}

std::vector<std::string> addresses_for_others(std::span<const std::string> bound,
                                              const std::string& first,
                                              const DialableHosts& hosts) {
  std::vector<std::string> addresses;
  for (const std::string& one : bound)
    if (!is_of_all_interfaces(one)) add(addresses, one);
  const bool is_first_dialable = !first.empty() && !is_loopback(first) &&
                                 !is_of_all_interfaces(first + ":0") &&
                                 first.find('%') == std::string::npos;
  for (const std::string& one : bound) {
    const auto [host, port] = parts_of(one);
    const bool takes_first = host == "[::]" || (host == "0.0.0.0" && !first.starts_with('['));
    if (is_of_all_interfaces(one) && is_first_dialable && takes_first)
      add(addresses, at(first, port));
  }
  for (const std::string& one : bound) {
    if (!is_of_all_interfaces(one)) continue;
    const auto [host, port] = parts_of(one);
    for (const std::string& each : host == "[::]" ? hosts.ipv6 : hosts.ipv4)
      add(addresses, at(each, port));
  }
  // Other members cannot use it, and may take it for their own.
  const auto keeps_in = [](const std::string& one) {
    return !one.starts_with("unix:") && is_loopback(parts_of(one).host);
  };
  if (!std::ranges::all_of(addresses, keeps_in)) std::erase_if(addresses, keeps_in);
  if (addresses.empty()) {
    for (const std::string& one : bound) {
      const auto [host, port] = parts_of(one);
      add(addresses, (host == "[::]" ? "[::1]:" : "127.0.0.1:") + port);
    }
  }
  return addresses;
}

std::vector<std::string> places_of_rank0(const ListenWish& wish, const Resolved& rendezvous) {
  const Address& address = rendezvous.address;
  std::vector<std::string> places;
  const bool is_kept_in = wish.profile == Profile::local || wish.one_host;
  const bool is_here = std::ranges::any_of(
      rendezvous.found, [](const SocketAddress& one) { return one.is_loopback(); });
  if (address.kind() == AddressKind::ip && is_kept_in && !is_here)
    places.push_back(at(loopback_of(rendezvous), address.port()));
  add(places, address.to_string());
  return places;
}

std::string join_addresses(std::span<const std::string> addresses) {
  std::string text;
  for (const std::string& one : addresses) text += (text.empty() ? "" : ",") + one;
  return text;
}

std::vector<std::string> split_addresses(std::string_view text) {
  if (text.starts_with("unix:")) return {std::string(text)};
  std::vector<std::string> addresses;
  while (!text.empty() && addresses.size() < kMostListenAddresses) {
    const std::size_t end = std::min(text.find_first_of(", \t\n"), text.size());
    if (end != 0) add(addresses, std::string(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return addresses;
}

}  // namespace tendon::v0::detail
