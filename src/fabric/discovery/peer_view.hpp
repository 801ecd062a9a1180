// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/core/context_id.hpp>
#include <tendon/fabric/peer_stats.hpp>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// What the live links to this peer know, without the name of a node; nothing where there is none.
[[nodiscard]] std::optional<PeerStats> stats_of_peer(ContextCore& context, const ContextId& peer);

}  // namespace tendon::v0::detail
