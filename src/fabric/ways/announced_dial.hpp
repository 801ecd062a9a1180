// SPDX-License-Identifier: Apache-2.0
// The dial of a Context that discovery announced.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <tendon/core/context_id.hpp>
#include <utility>
#include <vector>

#include "fabric/ways/dialler.hpp"

namespace tendon::v0::detail {

/// True for a socket in this user's runtime directory, which no other user can make. Only
/// KnownPeers::addresses_of() forms such addresses: announcements name none.
[[nodiscard]] inline bool is_own_socket(std::string_view address) {
  return address.starts_with("unix:");
}

[[nodiscard]] inline std::vector<std::string> own_sockets_of(std::vector<std::string> addresses) {
  std::erase_if(addresses, [](const std::string& address) { return !is_own_socket(address); });
  return addresses;
}

/// Returns the dial of an announced peer. If there may be a socket of this user, it is tried first.
[[nodiscard]] inline Dialler::Wanted wanted_at(std::string key, const ContextId& peer,
                                               std::vector<std::string> addresses,
                                               Dialler::Attempt attempt) {
  const auto sockets = std::erase_if(addresses, is_own_socket);
  return {.key = std::move(key),
          .peer = peer.to_string(),
          .attempt = std::move(attempt),
          .whence = sockets == 0 ? Dialler::Whence::announcement : Dialler::Whence::this_host,
          .addresses = std::move(addresses)};
}

}  // namespace tendon::v0::detail
