// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <tendon/fabric/fabric_event.hpp>
#include <vector>

#include "observe/line_pace.hpp"

namespace tendon::v0::detail {

/// The reason of an event `unreachable` begins with it.
inline constexpr std::string_view kAnnouncedNotReached = "announced, and not reached";
/// The same of one whose node was reached, over a link that carries no more channels.
inline constexpr std::string_view kAnnouncedNotConnected = "announced, and not connected";

/// Did somebody there refuse the link? Then another attempt will not help.
[[nodiscard]] bool is_refusal(const DialAttempt& attempt);
/// Why a publisher that was found is not connected, in one line: "found, and refused because
/// ADDRESS: ...", or "found, and not reached: ADDRESS: ..." where nobody there refused anything.
/// The attempt that says most is named: a refusal before an address at which nobody answered.
/// `tried` is not empty.
[[nodiscard]] std::string why_not(const std::vector<DialAttempt>& tried);
/// The same for an event `unreachable` or `schema_mismatch`.
[[nodiscard]] std::string why_not(const FabricEvent& event);

/// Logs the events of a node. The usual ones are logged each, as `info`; all others share one line
/// a cause and minute, of at most LinePace::kMostLineBytes with its level and place.
/// The program is told of each event, and of all that was tried.
///
/// Owns:    the pace.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a text for each event that is logged.
class EventLog {
 public:
  /// `context` as LogLine has it.
  void note(const FabricEvent& event, std::string_view context = {});

 private:
  LinePace pace_;
};

}  // namespace tendon::v0::detail
