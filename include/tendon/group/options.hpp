// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/session/profile.hpp>

namespace tendon::inline v0 {

/// May members that are not more than half of the last epoch go on by themselves?
enum class Minority : std::uint8_t {
  refuse,
  allow,  ///< two halves that cannot reach each other may both go on
};

/// Every member has a default; name the ones you set.
struct GroupOptions {
  /// In errors: all_reduce #118 on group "world".
  std::string name = "world";
  /// Where this member listens for the others; empty: TENDON_LISTEN, else a free port of the
  /// interface that reaches the rendezvous.
  std::string listen = {};
  /// `local` keeps the group to this user on one host; `plaintext` lets it span hosts, unprotected.
  Profile profile = Profile::local;
  Minority minority = Minority::refuse;
};

/// What happens to a member that is hung, not dead, when the others go on without it.
enum class Fence : std::uint8_t {
  none,  ///< only members that are proved dead, have left, or whose lease lapsed are left out
  kill,  ///< members of this host that do not come to shrink() before its deadline are killed
};

struct ShrinkOptions {
  Fence fence = Fence::none;
};

}  // namespace tendon::inline v0
