// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>

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

TENDON_WORDS(Profile, local, plaintext);

/// The protection of connections, in their options: .security = {Profile::plaintext}.
struct Security {
  Profile profile = Profile::local;

  friend bool operator==(const Security&, const Security&) = default;
};

/// Anything else is invalid_argument.
[[deprecated("parse_word<Profile>()")]] [[nodiscard]] inline Result<Profile> parse_profile(
    std::string_view text) {
  if (const auto profile = parse_word<Profile>(text)) return *profile;
  return Error{
      ErrorCode::invalid_argument, "session.profile",
      "profile '" + std::string(text) + "' does not exist; legal are " + legal_words<Profile>()};
}

}  // namespace v0
}  // namespace tendon
