// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

namespace tendon {
inline namespace v0 {

/// What protects a connection. The numbers are on the wire.
enum class Profile : std::uint8_t {
  /// The peer proved, by shared memory or a unix socket, that it is on this host, under the same
  /// uid. The default.
  local = 1,
  /// No protection, asked for by name: every routable bind, and every peer of another user, needs
  /// it.
  plaintext = 2,
};

/// "local" or "plaintext".
[[nodiscard]] TENDON_API std::string_view to_string(Profile profile);
/// The inverse; anything else is invalid_argument.
[[nodiscard]] TENDON_API Result<Profile> parse_profile(std::string_view text);

}  // namespace v0
}  // namespace tendon
