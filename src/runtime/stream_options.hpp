// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <tendon/session/path.hpp>
#include <utility>

#include "runtime/context_core.hpp"
#include "session/proofs.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::v0::detail {

/// Bulk connections of a link. A cable is as wide as its window, so a second one would not help.
[[nodiscard]] inline std::uint32_t lanes_of(PathKind kind, const ContextOptions& ours,
                                            const LinkLimits& peers) {
  return kind == PathKind::routed ? 1 : std::min(ours.streams, peers.streams);
}

/// The options of a link over `control`, for either side, after the peer has sent `peer` and shown
/// `proofs`.
[[nodiscard]] inline StreamLinkOptions stream_options(const ContextCore& context,
                                                      const HelloMessage& peer,
                                                      const Proofs& proofs, Path path,
                                                      std::unique_ptr<ByteStream> control) {
  const ContextOptions& ours = context.options();
  // Set one by one, because g++ 12 warns wrongly about the cleanup of a half-made aggregate.
  StreamLinkOptions options;
  options.path = std::move(path);
  options.peer = with_proofs(identity_of(peer), proofs);
  options.cap_bytes = ours.link_cap_bytes;
  options.peer_cap_bytes = peer.limits->link_cap_bytes;
  options.control = std::move(control);
  options.pool = context.memory().host;
  options.lease = ours.lease;
  options.expect_signs_of_life = peer.progress != ProgressMode::manual;
  options.gives_signs_of_life = ours.progress != Progress::manual;
  return options;
}

}  // namespace tendon::v0::detail
