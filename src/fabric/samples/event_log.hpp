// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <tendon/fabric/fabric_event.hpp>
#include <vector>

#include "observe/line_pace.hpp"

namespace tendon::v0::detail {

/// The beginning of the reason of an event `unreachable`.
inline constexpr std::string_view kAnnouncedNotReached = "announced, and not reached";
/// The same if its node was reached, over a link that carries no more channels.
inline constexpr std::string_view kAnnouncedNotConnected = "announced, and not connected";

/// True if somebody there refused the link. Another attempt will not help then.
[[nodiscard]] bool is_refusal(const DialAttempt& attempt);
/// The reason why a publisher that was found is not connected, in one line: "found, and refused
/// because ADDRESS: ...", or "found, and not reached: ADDRESS: ..." if nobody there refused
/// anything. It names the attempt that says most: a refusal before an address at which nobody
/// answered. `tried` is not empty.
[[nodiscard]] std::string why_not(const std::vector<DialAttempt>& tried);
/// The same for an event `unreachable` or `schema_mismatch`.
[[nodiscard]] std::string why_not(const FabricEvent& event);

/// Logs the events of a node. Each usual one is logged, as `info`; all others share one line a
/// cause and minute, of at most LinePace::kMostLineBytes with its level and place. The program gets
/// each event, with all attempts.
///
/// Owns:    the pace.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a text for each logged event.
class EventLog {
 public:
  /// `context` is that of LogLine.
  void note(const FabricEvent& event, std::string_view context = {});

 private:
  LinePace pace_;
};

}  // namespace tendon::v0::detail
