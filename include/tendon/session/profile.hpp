// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/secure/credential_files.hpp>

namespace tendon {
inline namespace v0 {

/// The protection of a connection. The numbers are on the wire.
enum class Profile : std::uint8_t {
  /// The peer proves, by shared memory or a unix socket, that it is on this host, under the same
  /// uid. The default.
  local = 1,
  /// No protection, asked for by name: for other hosts and users, where `secure` is not used.
  plaintext = 2,
  /// TLS 1.3: the peer proves that it has a key or a certificate, and nobody between reads or
  /// changes a byte. It needs Security::load(). For pipes; groups, topics, calls and the control
  /// plane answer `not_supported`.
  secure = 3,
};

TENDON_WORDS(Profile, local, plaintext, secure);

namespace detail::secure {
class Credentials;
}

/// The protection of connections, in their options: .security = {Profile::plaintext}, or
///
///   Security secure = Security::load({.key = "fleet.key"}).value();
///   Pipe pipe = Pipe::connect(context, "robot-7:7400", 5s, {.security = secure}).value();
///
/// Owns:    a share of the credentials.
/// Threads: a value.
/// Errors:  see load().
/// Blocks:  load() on the disk.
/// Cost:    that of its files.
struct Security {
  Profile profile = Profile::local;
  /// Credentials for `secure`; load() makes them.
  std::shared_ptr<const detail::secure::Credentials> credentials = nullptr;
  /// The name that the peer's certificate must have: NAME of a URI tendon:NAME, a URI, a DNS name
  /// or an address. A connection then shows its own certificate and no key, and a listener takes no
  /// key: it proves no name. An end without a certificate gets invalid_argument. Empty: a
  /// connection expects the host that it dials if the listener shows a certificate, and a listener
  /// takes each peer that its credentials prove.
  std::string peer = {};

  /// Returns Profile::secure with the credentials in the files. Errors: file_not_found;
  /// permission_denied for a file of secrets that others may read; invalid_argument for unusable
  /// contents, and for `peer` without a certificate; each names the file or the argument.
  [[nodiscard]] TENDON_API static Result<Security> load(const CredentialFiles& files,
                                                        std::string peer = {});

  friend bool operator==(const Security&, const Security&) = default;
};

/// Any other text is invalid_argument.
[[deprecated("parse_word<Profile>()")]] [[nodiscard]] inline Result<Profile> parse_profile(
    std::string_view text) {
  if (const auto profile = parse_word<Profile>(text)) return *profile;
  return Error{
      ErrorCode::invalid_argument, "session.profile",
      "profile '" + std::string(text) + "' does not exist; legal are " + legal_words<Profile>()};
}

}  // namespace v0
}  // namespace tendon
