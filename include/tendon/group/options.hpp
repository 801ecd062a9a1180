// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/formerly.hpp>
#include <tendon/core/words.hpp>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

/// Whether members that are not more than half of the last epoch may continue by themselves.
enum class Minority : std::uint8_t {
  refuse,
  allow,  ///< two halves that cannot reach each other may both continue
};
TENDON_WORDS(Minority, refuse, allow);

/// The options of Group::join(). Every member has a default; name the ones you set.
struct GroupOptions {
  /// The name of the group in errors: all_reduce #118 on group "world".
  std::string name = "world";
  /// The address at which this member listens for the others, "10.0.0.5:0". Empty: TENDON_LISTEN,
  /// else as docs/collectives.md#where-a-member-listens says. Rank 0 takes the port of the
  /// rendezvous.
  std::string listen = {};
  /// `local` keeps the group to this user on one host; `plaintext` lets it span hosts, unprotected.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  Minority minority = Minority::refuse;
};

/// How a member that is hung, not dead, is treated when the others continue without it.
enum class Fence : std::uint8_t {
  none,  ///< leaves out only members that are proved dead, have left, or whose lease lapsed
  /// Kills members of this host, by shared memory, that have not arrived by the deadline of the
  /// call. They must have shown no sign of life for 1 s (kSuspectAfter), or have held up the call
  /// for 1 s. With a deadline under 1 s, a member that runs and merely does not arrive is spared.
  /// The call continues for at most 40 ms after the deadline, so that the remaining members can
  /// agree; after a `timeout` call it again.
  kill,
};
TENDON_WORDS(Fence, none, kill);

/// How shrink() and rebuild() treat members that are hung.
struct ShrinkOptions {
  Fence fence = Fence::none;
};

}  // namespace v0
}  // namespace tendon
