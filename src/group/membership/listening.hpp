// SPDX-License-Identifier: Apache-2.0
// The addresses at which a member listens, and those by which others reach it. They are chosen here
// from known facts, without a look at the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/session/address.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "session/interfaces.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {

/// Most addresses that a member announces, and at which it listens.
inline constexpr std::size_t kMostListenAddresses = 4;

/// An address, and its meaning on this host; empty if it could not be looked up.
struct Resolved {
  Address address;
  std::vector<SocketAddress> found;
};

/// The addresses of this host.
struct OwnAddresses {
  std::vector<InterfaceAddress> interfaces;
  bool ipv6_takes_ipv4 = true;  ///< see ipv6_takes_ipv4()

  [[nodiscard]] bool has(const SocketAddress& address) const;
};

struct ListenWish {
  /// The requested address, and the name of the request: "GroupOptions::listen", "TENDON_LISTEN".
  std::optional<Resolved> told;
  std::string told_by;
  Profile profile = Profile::local;
  /// The launcher's words; see all_on_this_host().
  std::optional<std::string> one_host;
};

struct Listening {
  std::vector<std::string> addresses;  ///< to bind
  /// The reason for listening at all addresses unasked; empty: it does not.
  std::string why_all;
  /// The reason why others may be unable to reach it, for the error if they did not; empty: not
  /// known.
  std::string hint;
};

/// Chooses the addresses of rank 0: the requested one, at the port of the rendezvous. Others look
/// for it at the rendezvous, so it listens there as well if that is another address of this host,
/// unless a loopback one was requested. Without a request it listens at the addresses of this host,
/// except loopback, that the rendezvous means here; else, in `plaintext`, at all addresses. In
/// `local`, and where the launcher says that all are on this host, it listens only at loopback.
/// `rendezvous`: empty with a store. Errors: invalid_argument.
[[nodiscard]] Result<Listening> listening_of_rank0(const ListenWish& wish,
                                                   const std::optional<Resolved>& rendezvous,
                                                   const OwnAddresses& own);

/// Chooses the addresses of another member: the requested one, else the interface that led to rank
/// 0. On the host of rank 0 that may be loopback, where members of other hosts cannot reach it:
/// there it listens at all addresses in `plaintext`. `towards_rank0`: "10.0.0.2", "[::1]".
[[nodiscard]] Listening listening_of_member(const ListenWish& wish,
                                            const std::string& towards_rank0,
                                            const OwnAddresses& own);

/// The line of the log about that. `member`: "rank 0".
[[nodiscard]] std::string all_addresses_line(std::string_view member,
                                             std::span<const std::string> bound,
                                             std::string_view why_all);

/// Hosts that others can dial, by the family of a socket that listens at all addresses.
struct DialableHosts {
  std::vector<std::string> ipv4;
  std::vector<std::string> ipv6;
};

/// The addresses by which others reach `bound`, best first, 1 to kMostListenAddresses: that of the
/// interface `first` ("10.0.0.2"; empty: not known), then those of `hosts`. Never an unspecified
/// one; loopback only where there is no other.
[[nodiscard]] std::vector<std::string> addresses_for_others(std::span<const std::string> bound,
                                                            const std::string& first,
                                                            const DialableHosts& hosts);
/// True for "0.0.0.0:7000" and "[::]:7000".
[[nodiscard]] bool is_of_all_interfaces(std::string_view address);

/// The addresses at which another member looks for rank 0 without a store, in this order: those of
/// listening_of_rank0() if it is on this host, and the rendezvous.
[[nodiscard]] std::vector<std::string> places_of_rank0(const ListenWish& wish,
                                                       const Resolved& rendezvous);

/// Addresses as one text: "10.0.0.2:7000,10.1.0.2:7000".
[[nodiscard]] std::string join_addresses(std::span<const std::string> addresses);
/// The inverse, for the text of another member: commas and spaces part addresses,
/// kMostListenAddresses at most are taken. A text that begins with "unix:" is one address.
[[nodiscard]] std::vector<std::string> split_addresses(std::string_view text);

}  // namespace tendon::v0::detail
