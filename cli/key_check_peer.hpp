// SPDX-License-Identifier: Apache-2.0
// `tendon key check --peer`: whether a peer accepts the credentials that were checked.
#pragma once

#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/error.hpp>
#include <tendon/secure/credential_files.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/tensor/value.hpp>

namespace tendon::cli {

/// The listener at an address, and whether each end accepts the other.
struct CheckedPeer {
  std::string address;
  std::optional<PeerIdentity> identity;  ///< nothing where one of the two refuses
  std::optional<Error> fault;
};

/// Dials `address` with these files, again while nobody listens there, and makes a link that
/// carries no pipe: the program there sees nothing of it. `name`: as Security::peer.
[[nodiscard]] CheckedPeer check_peer(const CredentialFiles& files, const std::string& address,
                                     const std::string& name, Deadline deadline);
void print_peer(const CheckedPeer& peer);
[[nodiscard]] Value::Map document_of(const CheckedPeer& peer);

}  // namespace tendon::cli
