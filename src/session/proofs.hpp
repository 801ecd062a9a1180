// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/session/profile.hpp>

namespace tendon::v0::detail {

/// What a link has shown of the process at its other end, whichever listener let it in. A profile
/// is what a listener requires of it.
struct Proofs {
  enum class Host : std::uint8_t {
    unknown,
    same_user,  ///< this user on this host: each end mapped memory that the other passed, or the
                ///< kernel said so of a unix socket
  };
  Host host = Host::unknown;
  /// What a handshake proved; empty while no profile has one.
  std::string identity{};

  [[nodiscard]] static Proofs of_this_user() { return {.host = Host::same_user}; }
  [[nodiscard]] bool any() const { return host != Host::unknown || !identity.empty(); }
  [[nodiscard]] bool satisfy(Profile required) const {
    switch (required) {
      case Profile::local:
        return host == Host::same_user;
      case Profile::plaintext:
        return true;
    }
    return false;  // what this Context does not know is not proved
  }

  friend bool operator==(const Proofs&, const Proofs&) = default;
};

/// The profile that options ask for, by its former name too.
template <class Options>
[[nodiscard]] Profile profile_of(const Options& options) {
  return options.profile.over(options.security.profile);
}

}  // namespace tendon::v0::detail
