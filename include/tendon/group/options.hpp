// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/formerly.hpp>
#include <tendon/core/words.hpp>
#include <tendon/session/profile.hpp>

namespace tendon {
inline namespace v0 {

/// May members that are not more than half of the last epoch go on by themselves?
enum class Minority : std::uint8_t {
  refuse,
  allow,  ///< two halves that cannot reach each other may both go on
};
TENDON_WORDS(Minority, refuse, allow);

/// Every member has a default; name the ones you set.
struct GroupOptions {
  /// In errors: all_reduce #118 on group "world".
  std::string name = "world";
  /// Where this member listens for the others, "10.0.0.5:0"; empty: TENDON_LISTEN, else as
  /// docs/collectives.md#where-a-member-listens says. Rank 0 takes the port of the rendezvous.
  std::string listen = {};
  /// `local` keeps the group to this user on one host; `plaintext` lets it span hosts, unprotected.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  Minority minority = Minority::refuse;
};

/// What happens to a member that is hung, not dead, when the others go on without it.
enum class Fence : std::uint8_t {
  none,  ///< only members that are proved dead, have left, or whose lease lapsed are left out
  /// Members of this host, by shared memory, that have not come by the deadline of the call are
  /// killed then if they have given no sign of life for 1 s (kSuspectAfter), or if the call has
  /// waited for them for 1 s. With a deadline under 1 s, a member that runs and merely does not
  /// come is spared. The call goes on for at most 40 ms after the deadline, so that the members
  /// that are left can agree; after a `timeout` call it again.
  kill,
};
TENDON_WORDS(Fence, none, kill);

/// How shrink() and rebuild() treat members that are hung.
struct ShrinkOptions {
  Fence fence = Fence::none;
};

}  // namespace v0
}  // namespace tendon
