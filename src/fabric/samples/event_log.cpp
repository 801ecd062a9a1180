// SPDX-License-Identifier: Apache-2.0
#include "fabric/samples/event_log.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <tendon/core/error.hpp>

#include "observe/context_log.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "node.event";
// The text that the log puts before the words, beside the time, the process and the Context.
constexpr std::size_t kFrontBytes = std::string_view("tendon warn [] ").size() + kWhere.size();

bool is_usual(const FabricEvent& event) {
  return event.kind == FabricEventKind::gap || event.kind == FabricEventKind::came ||
         event.kind == FabricEventKind::discovery_found ||
         (event.ended && event.ended->reason == EndReason::closed);
}

// A failed attempt concerns all topics of its node; the sample at which a reader lags is no cause.
std::string cause_of(const FabricEvent& event) {
  std::string cause(to_string(event.kind));
  cause += '\n' + event.node;
  if (event.kind != FabricEventKind::unreachable) cause += '\n' + event.key;
  if (event.kind != FabricEventKind::lagging) cause += '\n' + event.reason;
  return cause;
}

std::string words_of(const FabricEvent& event) {
  std::ostringstream words;
  if (event.kind == FabricEventKind::unreachable && !event.key.empty()) {
    words << to_string(event.kind) << ": " << event.node << " on " << event.key << ": "
          << why_not(event);
  } else {
    words << event;
  }
  return words.str();
}

}  // namespace

bool is_refusal(const DialAttempt& attempt) {
  return attempt.error.starts_with(error_id(ErrorCode::permission_denied));
}

std::string why_not(const std::vector<DialAttempt>& tried) {
  auto telling = std::ranges::find_if(tried, is_refusal);
  const bool refused = telling != tried.end();
  if (!refused) telling = tried.begin();
  // Without the advice, which has its own line.
  const std::string error = telling->error.substr(0, telling->error.find('\n'));
  return (refused ? "found, and refused because " : "found, and not reached: ") + telling->address +
         ": " + error;
}

std::string why_not(const FabricEvent& event) {
  if (!event.tried.empty()) return why_not(event.tried);
  if (event.kind == FabricEventKind::schema_mismatch)
    return "found, and refused because " + event.reason;
  std::string_view reason = event.reason;
  if (reason.starts_with(kAnnouncedNotConnected))
    return "found, and not connected" + std::string(reason.substr(kAnnouncedNotConnected.size()));
  if (reason.starts_with(kAnnouncedNotReached)) reason.remove_prefix(kAnnouncedNotReached.size());
  if (reason.starts_with(": ")) reason.remove_prefix(2);
  return "found, and not reached: " + std::string(reason);
}

void EventLog::note(const FabricEvent& event, std::string_view context) {
  if (is_usual(event)) {
    if (log_enabled(LogLevel::info)) log_of(context, LogLevel::info, kWhere, words_of(event));
    return;
  }
  if (!log_enabled(LogLevel::warn)) return;
  const auto held_back = pace_.next(cause_of(event), LinePace::Clock::now());
  if (!held_back) return;
  std::string more;
  if (*held_back != 0) more = " (" + std::to_string(*held_back) + " more since the last line)";
  const std::size_t room = LinePace::kMostLineBytes - kFrontBytes - more.size();
  log_of(context, LogLevel::warn, kWhere, LinePace::cut(words_of(event), room) + more);
}

}  // namespace tendon::v0::detail
