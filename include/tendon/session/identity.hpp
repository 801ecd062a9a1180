// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/export.hpp>

namespace tendon {
inline namespace v0 {

/// The identity of the peer, as its hello says; pid and uid are proved only on one host.
///
/// Owns:    its strings.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    two strings.
struct TENDON_API PeerIdentity {
  ContextId context;
  std::uint64_t incarnation = 0;  ///< wall clock at its making [ns]; the later of two runs has more
  std::int64_t pid = 0;           ///< in the peer's own pid namespace
  std::uint32_t uid = 0;
  std::string host;
  std::string name;  ///< chosen by the peer's user; may be empty

  /// "learner (host a, pid 4711)", or "host a, pid 4711" when it has no name.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const PeerIdentity&, const PeerIdentity&) = default;
};

}  // namespace v0
}  // namespace tendon
