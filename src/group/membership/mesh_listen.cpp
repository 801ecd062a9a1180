// SPDX-License-Identifier: Apache-2.0
// The addresses at which the members of a mesh listen, and at which they look for rank 0.
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <tendon/session/address.hpp>
#include <utility>

#include "core/text.hpp"
#include "group/membership/attempts.hpp"
#include "group/membership/launcher.hpp"
#include "group/membership/listening.hpp"
#include "group/membership/mesh.hpp"
#include "session/nonce128.hpp"
#include "session/own_host.hpp"
#include "session/proofs.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "group.join";
constexpr auto kLookUp = std::chrono::seconds(5);
constexpr std::string_view kKeptIn =
    "; profile 'local' keeps the group to this host: ask for 'plaintext' by name to span hosts";

Resolved look_up(Address address, Deadline deadline) {
  auto found = resolve(address, earlier(deadline, Deadline(kLookUp)), ResolveFor::bind);
  Resolved resolved{std::move(address), {}};
  if (found) resolved.found = *std::move(found);
  return resolved;
}

Result<ListenWish> wish_of(const GroupOptions& options, std::uint32_t size, Deadline deadline) {
  ListenWish wish;
  wish.profile = profile_of(options);
  wish.one_host = all_on_this_host(variable, size);
  std::string told = options.listen;
  wish.told_by = "GroupOptions::listen";
  if (told.empty()) {
    told = variable("TENDON_LISTEN").value_or("");
    wish.told_by = "TENDON_LISTEN";
  }
  if (told.empty()) return wish;
  auto address = Address::parse(told);
  if (!address) {
    Error error = std::move(address).error();
    error.detail = wish.told_by + ": " + error.detail;
    return error;
  }
  wish.told = look_up(*std::move(address), deadline);
  return wish;
}

Result<OwnAddresses> own_addresses() {
  TENDON_TRY(interfaces, interface_addresses());
  return OwnAddresses{std::move(interfaces), ipv6_takes_ipv4()};
}

Result<DialableHosts> dialable_hosts(std::span<const std::string> bound) {
  DialableHosts hosts;
  for (const std::string& one : bound) {
    if (!is_of_all_interfaces(one)) continue;
    const bool is_ipv6 = one.starts_with('[');
    TENDON_TRY(found, announceable_hosts(is_ipv6 ? AF_INET6 : AF_INET));
    (is_ipv6 ? hosts.ipv6 : hosts.ipv4) = std::move(found);
  }
  return hosts;
}

}  // namespace

Result<std::vector<std::string>> Mesh::bind_all(std::span<const std::string> addresses) {
  std::vector<std::string> bound;
  for (const std::string& address : addresses) {
    TENDON_TRY(acceptor,
               Acceptor::bind(context_, address, {profile_of(options_)}, weak_from_this()));
    bound.push_back(acceptor->address());
    acceptors_.push_back(std::move(acceptor));
  }
  return bound;
}

std::string Mesh::key_in_store() const { return "tendon/" + options_.name + "/rank0"; }

Result<std::string> Mesh::listen_as_rank0(Deadline deadline) {
  std::optional<Resolved> rendezvous;
  if (rendezvous_.store() == nullptr) {
    TENDON_TRY(address, Address::parse(rendezvous_.address()));
    rendezvous = look_up(std::move(address), deadline);
  }
  ListenWish wish;
  // At a unix socket it listens whatever was requested.
  if (!rendezvous || rendezvous->address.kind() == AddressKind::ip) {
    TENDON_TRY(wished, wish_of(options_, size_, deadline));
    wish = std::move(wished);
  }
  TENDON_TRY(own, own_addresses());
  TENDON_TRY(listening, listening_of_rank0(wish, rendezvous, own));
  TENDON_TRY(bound, bind_all(listening.addresses));
  address_ = join_addresses(bound);
  if (!listening.why_all.empty())
    context_->log(LogLevel::warn, kWhere, all_addresses_line("rank 0", bound, listening.why_all));
  return listening.hint;
}

// All members reach the store: the interface that leads to it is the likeliest to lead to them.
Result<void> Mesh::publish_address(Deadline deadline) {
  RendezvousStore& store = *rendezvous_.store();
  const std::vector<std::string> bound = split_addresses(address_);
  TENDON_TRY(hosts, dialable_hosts(bound));
  const std::string first = own_host_towards(store.host(), earlier(deadline, Deadline(kLookUp)));
  return store.set(key_in_store(), join_addresses(addresses_for_others(bound, first, hosts)),
                   deadline);
}

Result<void> Mesh::listen_as_member(const std::string& towards_rank0, Deadline deadline) {
  Listening listening;
  if (towards_rank0.empty() && options_.listen.empty()) {
    TENDON_TRY(name, random_nonce());
    listening.addresses = {"unix:@tendon-" + to_hex(name)};
  } else {
    TENDON_TRY(wish, wish_of(options_, size_, deadline));
    TENDON_TRY(own, own_addresses());
    listening = listening_of_member(wish, towards_rank0, own);
  }
  TENDON_TRY(bound, bind_all(listening.addresses));
  if (!listening.why_all.empty()) {
    context_->log(LogLevel::warn, kWhere,
                  all_addresses_line("this member", bound, listening.why_all));
  }
  TENDON_TRY(hosts, dialable_hosts(bound));
  address_ = join_addresses(addresses_for_others(bound, towards_rank0, hosts));
  return {};
}

Result<Mesh::Dialled> Mesh::reach_rank0(Deadline deadline) {
  if (rendezvous_.store() != nullptr) return reach_rank0_by_store(deadline);
  TENDON_TRY(address, Address::parse(rendezvous_.address()));
  ListenWish wish;
  wish.profile = profile_of(options_);
  wish.one_host = all_on_this_host(variable, size_);
  Resolved rendezvous{std::move(address), {}};
  // Otherwise the dialling looks it up.
  if (wish.profile == Profile::local || wish.one_host)
    rendezvous = look_up(std::move(rendezvous.address), deadline);
  const auto places = places_of_rank0(wish, rendezvous);
  std::string more =
      "the process that should listen there has not called join() yet, or has given up";
  if (wish.profile == Profile::local && places.size() > 1) more += kKeptIn;
  return dial(0, places, more, deadline);
}

Result<Mesh::Dialled> Mesh::reach_rank0_by_store(Deadline deadline) {
  const std::string key = key_in_store();
  std::string more = "the store has this of rank 0 ('" + key +
                     "'), which has given up since, or cannot be reached there from this host";
  if (profile_of(options_) == Profile::local) more += kKeptIn;
  Attempts attempts;
  for (;;) {
    auto text = rendezvous_.store()->get(key, deadline);
    if (!text) {
      Error error = std::move(text).error();
      if (error.code != ErrorCode::timeout) return error;
      if (!attempts.empty()) return attempts.nobody_answered(more);
      error.detail = "rank 0 has not come: the store has no key '" + key + "': " + error.detail;
      return error;
    }
    const auto addresses = split_addresses(*text);
    if (addresses.empty()) {
      return Error{ErrorCode::invalid_argument, kWhere,
                   "the store has no address of rank 0 in its key '" + key + "'"};
    }
    attempts.keep_only(addresses);
    TENDON_TRY(dialled, dial_each(addresses, deadline, attempts));
    if (dialled) return *std::move(dialled);
    TENDON_TRY(goes_on, pause_between(attempts, deadline));
    if (!goes_on) return attempts.nobody_answered(more);
  }
}

}  // namespace tendon::v0::detail
