// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/zenoh_membership.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <tendon/session/address.hpp>
#include <utility>

#include "core/environment.hpp"
#include "core/text.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "session/machine.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {
namespace {

bool is_overridden() {
  return environment_variable("ZENOH_CONFIG_OVERRIDE").find("endpoints") != std::string_view::npos;
}

/// A number alone may lack its port: a word is more likely a mistake.
Result<Address> with_port_of_routers(std::string_view host) {
  TENDON_TRY(address, Address::parse(std::string(host) + ':' + std::string(kRouterPort)));
  in6_addr number{};
  if (address.kind() == AddressKind::ip &&
      (inet_pton(AF_INET, address.host().c_str(), &number) == 1 ||
       inet_pton(AF_INET6, address.host().c_str(), &number) == 1))
    return address;
  return Error{ErrorCode::invalid_argument, "fabric.router", "no number"};
}

Result<std::string> endpoint_of(std::string_view router) {
  constexpr std::array<std::string_view, 3> kTransports = {"tcp/", "tls/", "unixsock-stream/"};
  for (const std::string_view transport : kTransports)
    if (router.starts_with(transport) && router.size() > transport.size())
      return std::string(router);
  auto address = Address::parse(router);
  if (!address) address = with_port_of_routers(router);
  if (!address || (address->kind() == AddressKind::unix_path && address->path().starts_with('@'))) {
    return Error{ErrorCode::invalid_argument, "fabric.router",
                 "the router " + quote_text(router) +
                     ": legal are HOST:PORT, a number of a host for port 7447, unix:/PATH, "
                     "tcp/HOST:PORT, tls/HOST:PORT and "
                     "unixsock-stream//PATH"};
  }
  return address->kind() == AddressKind::ip ? "tcp/" + address->to_string()
                                            : "unixsock-stream/" + address->path();
}

Result<std::string> star_name(const std::string& domain) {
  TENDON_TRY(hash, domain_hash(domain));
  return to_hex(hash) + ".zenoh";
}

/// All tries of one round together: a thread that ends the session waits no longer.
constexpr std::chrono::milliseconds kBackgroundRound{2000};

Result<std::unique_ptr<LateZenoh>> open_late(ZenohOptions options) {
  const auto count = static_cast<std::int64_t>(options.connect.size());
  options.patience = std::min(options.patience, kBackgroundRound / count);
  options.nobody = "no router answered yet: " + options.nobody;
  return LateZenoh::begin([options = std::move(options)] { return open_zenoh_once(options); });
}

/// Opens the client, and defines how the one for plain samples is opened.
Result<void> open_client(ZenohMembership& membership, ZenohOptions options, DiscoveryNeed need,
                         Deadline deadline) {
  options.most_bytes = kMaxZenohBytes;
  membership.open_for_plain = [options, need](Deadline when) -> Result<std::unique_ptr<ZenohPort>> {
    if (need == DiscoveryNeed::required) return open_zenoh(options, when);
    TENDON_TRY(late, open_late(options));
    return std::unique_ptr<ZenohPort>(std::move(late));
  };
  options.most_bytes = kMaxQuietZenohBytes;
  if (need == DiscoveryNeed::required) {
    TENDON_TRY(client, open_zenoh(options, deadline));
    membership.client = std::move(client);
    return {};
  }
  TENDON_TRY(client, open_late(std::move(options)));
  membership.late = client.get();
  membership.client = std::move(client);
  return {};
}

}  // namespace

Result<std::vector<std::string>> zenoh_endpoints(const std::vector<std::string>& routers) {
  std::vector<std::string> endpoints;
  for (const std::string& router : routers) {
    TENDON_TRY(endpoint, endpoint_of(router));
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

Result<std::string> star_path(const std::string& domain) {
  TENDON_TRY(directory, runtime_directory());
  TENDON_TRY(name, star_name(domain));
  return directory + '/' + name;
}

Result<ZenohMembership> join_star(RuntimeHome& home, const std::string& domain, DiscoveryNeed need,
                                  Deadline deadline) {
  TENDON_CHECK(zenoh_version());
  TENDON_CHECK(check_zenoh_can_run());
  TENDON_TRY(name, star_name(domain));
  const std::string directory = home.directory();
  if (directory.empty()) {
    return Error{ErrorCode::unreachable, "fabric.star",
                 "there is no runtime directory that is ours alone just now"};
  }
  ZenohMembership membership;
  if (!is_overridden()) {
    TENDON_TRY(seat, StarSeat::take(directory, name));
    membership.server = std::move(seat);
    home.add(membership.server);
  }
  ZenohOptions options{
      .connect = StarPlaces::at(home.door().path() + '/' + name).endpoints(),
      .connect_as = StarPlaces::at(directory + '/' + name).endpoints(),
      .patience = StarServer::kTry,
      .last_retry = StarServer::kLastRetry,
      .nobody = "nobody of this host answers where the nodes of domain '" + domain + "' meet,"};
  TENDON_CHECK(open_client(membership, std::move(options), need, deadline));
  if (membership.server != nullptr) {
    StarSeat& server = *membership.server;
    const ZenohPort& session = *membership.client;
    TENDON_TRY(state, membership.client->on_state(
                          [&server, &session](SessionState) { server.look_at(session); }));
    membership.state = std::move(state);
    server.look_at(session);
  }
  return membership;
}

Result<ZenohMembership> join_routers(const std::vector<std::string>& routers, DiscoveryNeed need,
                                     Deadline deadline) {
  TENDON_TRY(endpoints, zenoh_endpoints(routers));
  TENDON_CHECK(zenoh_version());
  TENDON_CHECK(check_zenoh_can_run());
  ZenohMembership membership;
  TENDON_CHECK(open_client(membership, {.connect = std::move(endpoints)}, need, deadline));
  return membership;
}

}  // namespace tendon::v0::detail
