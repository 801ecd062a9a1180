// SPDX-License-Identifier: Apache-2.0
#include "observe/stranger_log.hpp"

#include <algorithm>
#include <tendon/observe/log.hpp>
#include <utility>

#include "observe/context_log.hpp"
#include "observe/line_pace.hpp"

namespace tendon::v0::detail {
namespace {

void say_left_out(std::uint64_t count) {
  if (count == 0) return;
  log(LogLevel::warn, "strangers",
      "refused " + std::to_string(count) +
          " more that have no line: at most 1 a second is about one address, and " +
          std::to_string(StrangerLog::kMostLines) + " are about all");
}

}  // namespace

std::optional<StrangerLog::Clock::time_point> StrangerLog::refuse(std::string_view context,
                                                                  std::string_view where,
                                                                  const Stranger& stranger,
                                                                  std::string_view why,
                                                                  Clock::time_point now) {
  if (!log_enabled(LogLevel::warn)) return std::nullopt;
  std::uint64_t count = 0;
  bool has_turn = false;
  std::optional<Clock::time_point> due;
  {
    const Lock lock(mutex_);
    if (left_out_ != 0 && now >= count_is_due_) count = std::exchange(left_out_, 0);
    while (!said_.empty() && now - said_.front().when >= kPause) said_.pop_front();
    has_turn = said_.size() < kMostLines && std::ranges::none_of(said_, [&](const Said& line) {
                 return line.source == stranger.source;
               });
    if (has_turn)
      said_.push_back({now, stranger.source});
    else if (left_out_++ == 0)
      due = count_is_due_ = now + kPause;
  }
  say_left_out(count);
  if (has_turn) {
    const std::string text = "refused " + stranger.address + ": " + std::string(why);
    log_of(context, LogLevel::warn, where, LinePace::cut(text, kMostTextBytes));
  }
  return due;
}

void StrangerLog::tell_left_out() {
  std::uint64_t count = 0;
  {
    const Lock lock(mutex_);
    count = std::exchange(left_out_, 0);
  }
  say_left_out(count);
}

}  // namespace tendon::v0::detail
