// SPDX-License-Identifier: Apache-2.0
#include "session/bind_permission.hpp"

#include <chrono>
#include <string>
#include <tendon/session/address.hpp>

#include "session/proofs.hpp"

namespace tendon::v0::detail {
namespace {

constexpr auto kLookUpOfHost = std::chrono::seconds(5);

}  // namespace

Result<void> may_bind(const Security& security, const SocketAddress& place, std::string_view named,
                      std::string_view where) {
  TENDON_CHECK(check_credentials(security, where));
  if (security.profile != Profile::local || place.is_loopback()) return {};
  return Error{ErrorCode::permission_denied, where,
               std::string(named) +
                   " can be reached from other machines, and profile 'local' serves this "
                   "user on this host only; bind to 127.0.0.1, give it a key (Security::load(), "
                   "--key FILE of `tendon recv`), or ask for profile 'plaintext' by name "
                   "(Profile::plaintext, --insecure-plaintext of `tendon recv`)"};
}

Result<void> may_bind_host(const Security& security, std::string_view host,
                           std::string_view where) {
  TENDON_TRY(address, Address::parse(std::string(host) + ":0"));
  TENDON_TRY(places, resolve(address, kLookUpOfHost, ResolveFor::bind));
  for (const SocketAddress& place : places) TENDON_CHECK(may_bind(security, place, host, where));
  return {};
}

}  // namespace tendon::v0::detail
