// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/session/profile.hpp>
#include <utility>

#include "secure/shared_key.hpp"

namespace tendon::v0::detail {

/// The facts that a link has shown about the process at its other end, whichever listener admitted
/// it. A profile is a listener's requirement for them.
struct Proofs {
  enum class Host : std::uint8_t {
    unknown,
    same_user,  ///< this user on this host: each end mapped memory that the other passed, or the
                ///< kernel confirmed it for a unix socket
  };
  Host host = Host::unknown;
  /// The peer's identity, as a TLS handshake has proved it; empty: unproved.
  std::string identity{};
  /// The key or certificate that proved it, because two of one name differ.
  std::string credential{};

  [[nodiscard]] bool is_same_peer(const Proofs& other) const {
    return identity == other.identity && credential == other.credential;
  }
  [[nodiscard]] bool is_by_key() const { return identity.starts_with(kKeyPrefix); }
  /// A name outlives the certificates that prove it; a key is its own name.
  [[nodiscard]] bool has_name_of(const Proofs& other) const {
    return identity == other.identity && (credential == other.credential || !is_by_key());
  }
  [[nodiscard]] bool any() const { return host != Host::unknown || !identity.empty(); }
  [[nodiscard]] bool satisfy(Profile required) const {
    switch (required) {
      case Profile::local:
        return host == Host::same_user;
      case Profile::plaintext:
        return true;
      case Profile::secure:
        return !identity.empty();
    }
    return false;  // an unknown profile is not satisfied
  }

  friend bool operator==(const Proofs&, const Proofs&) = default;
};

/// Adds to `claims` the identity and the proof that `proofs` have of the peer.
[[nodiscard]] TENDON_API PeerIdentity with_proofs(PeerIdentity claims, const Proofs& proofs);

/// invalid_argument for a `secure` without credentials, for credentials beside another profile, and
/// for a name of a peer without a certificate; `forked` for credentials that a parent of this
/// process loaded.
[[nodiscard]] TENDON_API Result<void> check_credentials(const Security& security,
                                                        std::string_view where);
/// not_supported for a `secure` where it does not exist yet, naming `what`; check_credentials().
[[nodiscard]] TENDON_API Result<void> refuse_secure(const Security& security,
                                                    std::string_view where, std::string_view what);

/// The protection that options request, also under its former name.
template <class Options>
[[nodiscard]] Security security_of(Options options) {
  Security security = std::move(options.security);
  security.profile = options.profile.over(security.profile);
  return security;
}

/// The profile that options request, also under its former name.
template <class Options>
[[nodiscard]] Profile profile_of(const Options& options) {
  return options.profile.over(options.security.profile);
}

}  // namespace tendon::v0::detail
