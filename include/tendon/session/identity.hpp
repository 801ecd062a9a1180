// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// The way in which the peer of a link has proved its identity.
enum class IdentityProof : std::uint8_t {
  none,         ///< not at all: plaintext over a network
  local,        ///< by the kernel: it is a process of this user on this host
  key,          ///< by a key that both ends have
  certificate,  ///< by a certificate of the CA that this end trusts
};
TENDON_WORDS(IdentityProof, none, local, key, certificate);

/// The peer at the other end. All but `identity` and `proof` is its own claim, from its hello; only
/// where `proof` is `local` the kernel has confirmed the uid. Decide by `identity` alone.
///
/// Owns:    its strings.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    three strings.
struct TENDON_API PeerIdentity {
  ContextId context;
  std::uint64_t incarnation = 0;  ///< wall clock at its making [ns]; the later of two runs has more
  std::int64_t pid = 0;           ///< in the peer's own pid namespace
  std::uint32_t uid = 0;
  std::string host;
  std::string name;  ///< chosen by the peer's user; may be empty
  /// By `proof` key: "key:LABEL"; all who have that key are one. By a certificate: its first URI,
  /// "tendon:NAME", else its first DNS name, "dns:NAME". Else empty.
  std::string identity = {};
  IdentityProof proof = IdentityProof::none;

  /// "learner (host a, pid 4711)", with an identity "learner (key:fleet, host a, pid 4711)";
  /// without a name, the text in the brackets.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const PeerIdentity&, const PeerIdentity&) = default;
};

}  // namespace v0
}  // namespace tendon
