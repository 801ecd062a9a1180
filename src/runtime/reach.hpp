// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// One address, and how it failed the last time.
struct Tried {
  std::string address;
  Error error;
};

struct Reached {
  Result<std::shared_ptr<Link>> link;
  std::vector<Tried> tried;  ///< in the order of the addresses, as far as they were dialled
};

/// A link to a Context that is known by its id, on which ContextCore::open_pipe() opens pipes for a
/// purpose: a live one that either side made, else one made at the first of `addresses` where that
/// very Context answers. They are tried in order, again and again with growing pauses, until the
/// deadline; at most LinkTable::kMostDialling peers of a Context at once.
///
/// Runs in the calling thread, which makes progress meanwhile. Errors: invalid_argument without an
/// address, permission_denied, and otherwise `timeout`, which says what was tried last.
[[nodiscard]] Reached try_to_reach(ContextCore& context, const ContextId& peer,
                                   std::span<const std::string> addresses, Profile profile,
                                   Deadline deadline);
/// The same, for a caller that does not ask what was tried.
[[nodiscard]] Result<std::shared_ptr<Link>> reach(ContextCore& context, const ContextId& peer,
                                                  std::span<const std::string> addresses,
                                                  Profile profile, Deadline deadline);

}  // namespace tendon::v0::detail
