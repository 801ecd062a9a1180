// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stop_token>
#include <tendon/core/formerly.hpp>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

/// How connecting ends where nobody listens. That is: the connection is refused, the unix path does
/// not exist, the host cannot be reached or looked up, or the listener has no place.
enum class Absent : std::uint8_t {
  wait,  ///< dials again until the deadline, with pauses of 20 ms to 1 s
  fail,  ///< returns the first answer; dials again only after a peer that hung up without a word
};

struct ConnectOptions {
  /// `local`: the peer must prove to be this user on this host. `plaintext`: any peer, unprotected.
  /// `secure`, by Security::load(): the peer must prove a key or certificate.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  Absent absent = Absent::wait;
  /// A requested stop ends the dialling within a second: `cancelled`.
  std::stop_token stop = {};
};

}  // namespace v0
}  // namespace tendon
