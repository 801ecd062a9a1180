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

/// One address, and its last failure.
struct Tried {
  std::string address;
  Error error;
};

struct Reached {
  Result<std::shared_ptr<Link>> link;
  std::vector<Tried> tried;  ///< in the order of the addresses, as far as they were dialled
};

/// Finds or makes a link to a Context that is known by its id; ContextCore::open_pipe() then opens
/// pipes on it for a purpose. A live link that has a proof, or that this side made, is preferred.
/// Otherwise it dials `addresses` until that very Context answers. The last choice is an unproved
/// link that the peer made, or a stranger that claims its id.
///
/// The addresses are tried in order, repeatedly and with growing pauses, until the deadline. A
/// Context dials at most LinkTable::kMostDialling peers at once.
///
/// Runs in the calling thread, which makes progress meanwhile. Errors: invalid_argument without an
/// address, permission_denied, and otherwise `timeout`, which names the last attempt.
[[nodiscard]] Reached try_to_reach(ContextCore& context, const ContextId& peer,
                                   std::span<const std::string> addresses, const Security& security,
                                   Deadline deadline);
/// Tries each address once. It takes no place of kMostDialling, so its callers bound how many of
/// them run. Unproved links that the peer made do not count. Errors: that of the last address.
[[nodiscard]] Result<std::shared_ptr<Link>> reach_once(ContextCore& context, const ContextId& peer,
                                                       std::span<const std::string> addresses,
                                                       const Security& security, Deadline deadline);

}  // namespace tendon::v0::detail
