// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/session/path.hpp>

namespace tendon {
inline namespace v0 {

/// The state of the live links to a node. Counts include all traffic between this Context and the
/// node's since the links were made, whatever its purpose: the difference of two reads is a rate.
struct PeerStats {
  std::string node;
  ContextId context;
  std::uint64_t incarnation = 0;  ///< when its Context was made [ns of wall clock]
  Path path;                      ///< how bytes reach it, and why
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t dropped_messages = 0;  ///< received for channels that were closed
  /// Frames from routers that were no part of a link, whichever the peer, since this Context's
  /// first routed link. Strangers put them, or somebody put them again.
  std::uint64_t stray_frames = 0;
  /// Questions for links that reached this Context through routers and were dropped or refused,
  /// whichever the peer. They were larger or more than docs/limits.md allows.
  std::uint64_t refused_questions = 0;
  /// Round trip of the shortest message, the least of the last ones, through both service threads,
  /// which sleep between. The first read asks the peer, so a later one has it; from then on it is
  /// measured every four seconds.
  std::optional<std::chrono::nanoseconds> round_trip;
  /// Time since its last sign of life, checked a few times a second; a busy peer shows some too.
  std::chrono::nanoseconds silence{};
};

}  // namespace v0
}  // namespace tendon
