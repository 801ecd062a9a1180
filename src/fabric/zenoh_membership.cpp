// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh_membership.hpp"

#include <array>
#include <cstdlib>
#include <string_view>
#include <tendon/session/address.hpp>
#include <utility>

#include "core/text.hpp"
#include "fabric/announcement.hpp"
#include "fabric/zenoh_session.hpp"
#include "session/machine.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {
namespace {

bool is_overridden() {
  const char* const text = std::getenv("ZENOH_CONFIG_OVERRIDE");
  return text != nullptr && std::string_view(text).find("endpoints") != std::string_view::npos;
}

Result<std::string> endpoint_of(std::string_view router) {
  constexpr std::array<std::string_view, 3> kTransports = {"tcp/", "tls/", "unixsock-stream/"};
  for (const std::string_view transport : kTransports)
    if (router.starts_with(transport) && router.size() > transport.size())
      return std::string(router);
  const auto address = Address::parse(router);
  if (!address || (address->kind() == AddressKind::unix_path && address->path().starts_with('@'))) {
    return Error{ErrorCode::invalid_argument, "fabric.router",
                 "the router " + quote_text(router) +
                     ": legal are HOST:PORT, unix:/PATH, tcp/HOST:PORT, tls/HOST:PORT and "
                     "unixsock-stream//PATH"};
  }
  return address->kind() == AddressKind::ip ? "tcp/" + address->to_string()
                                            : "unixsock-stream/" + address->path();
}

Result<std::unique_ptr<ZenohPort>> open_client(const std::vector<std::string>& endpoints,
                                               Deadline deadline) {
  return open_zenoh({.connect = endpoints, .most_bytes = kMaxQuietZenohBytes}, deadline);
}

auto opener_for_plain(std::vector<std::string> endpoints) {
  return [endpoints = std::move(endpoints)](Deadline deadline) {
    return open_zenoh({.connect = endpoints, .most_bytes = kMaxZenohBytes}, deadline);
  };
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
  TENDON_TRY(hash, domain_hash(domain));
  return directory + '/' + to_hex(hash) + ".zenoh";
}

Result<ZenohMembership> join_star(const std::string& domain, Deadline deadline) {
  TENDON_CHECK(zenoh_version());
  TENDON_TRY(path, star_path(domain));
  ZenohMembership membership;
  if (!is_overridden()) membership.server = std::make_shared<StarServer>(path);
  const std::vector<std::string> endpoints{"unixsock-stream/" + path};
  TENDON_TRY(client, open_client(endpoints, deadline));
  membership.client = std::move(client);
  membership.open_for_plain = opener_for_plain(endpoints);
  if (membership.server != nullptr) {
    StarServer& server = *membership.server;
    const ZenohPort& session = *membership.client;
    TENDON_TRY(state, membership.client->on_state(
                          [&server, &session](SessionState) { server.look_at(session); }));
    membership.state = std::move(state);
    server.look_at(session);
  }
  return membership;
}

Result<ZenohMembership> join_routers(const std::vector<std::string>& routers, Deadline deadline) {
  TENDON_TRY(endpoints, zenoh_endpoints(routers));
  ZenohMembership membership;
  TENDON_TRY(client, open_client(endpoints, deadline));
  membership.client = std::move(client);
  membership.open_for_plain = opener_for_plain(endpoints);
  return membership;
}

}  // namespace tendon::v0::detail
