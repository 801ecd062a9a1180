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

/// What the live links to a node know of it. Counts are of all that this Context and that of the
/// node have said to each other since the links were made, whatever it was for: the difference of
/// two looks is a rate.
struct PeerStats {
  std::string node;
  ContextId context;
  std::uint64_t incarnation = 0;  ///< when its Context was made [ns of wall clock]
  Path path;                      ///< how bytes reach it, and why so
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t dropped_messages = 0;  ///< received for channels that were gone
  /// Frames that came to this Context through routers since its first routed link, to whichever
  /// peer, and were no part of a link: strangers put them, or somebody put them again.
  std::uint64_t stray_frames = 0;
  /// Questions for links that came to this Context through routers, from whichever peer. This end
  /// dropped or refused them, because they were larger or more than docs/limits.md allows.
  std::uint64_t refused_questions = 0;
  /// There and back for the shortest of messages, the least of the last ones: through both service
  /// threads, which sleep between. The first look asks the peer, so a later one has it; then it is
  /// measured every four seconds.
  std::optional<std::chrono::nanoseconds> round_trip;
  /// Since its last sign of life, as seen a few times a second; one that is busy gives some too.
  std::chrono::nanoseconds silence{};
};

}  // namespace v0
}  // namespace tendon
