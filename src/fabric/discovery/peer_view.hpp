// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/core/context_id.hpp>
#include <tendon/fabric/peer_stats.hpp>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// The state of the live links to this peer, without the name of a node; empty if there is none.
[[nodiscard]] std::optional<PeerStats> stats_of_peer(ContextCore& context, const ContextId& peer);

}  // namespace tendon::v0::detail
