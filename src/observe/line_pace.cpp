// SPDX-License-Identifier: Apache-2.0
#include "observe/line_pace.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/text.hpp"

namespace tendon::v0::detail {

std::optional<std::uint64_t> LinePace::next(const std::string& cause, Clock::time_point now) {
  const Lock lock(mutex_);
  if (const auto known = said_.find(cause); known != said_.end()) {
    Said& said = known->second;
    if (now - said.when < kPause) {
      ++said.held_back;
      return std::nullopt;
    }
    said.when = now;
    return std::exchange(said.held_back, 0);
  }
  if (said_.size() >= kMostCauses) {
    said_.erase(
        std::ranges::min_element(said_, {}, [](const auto& entry) { return entry.second.when; }));
  }
  said_.emplace(cause, Said{.when = now});
  return 0;
}

std::string LinePace::cut(const std::string& line, std::size_t most) {
  constexpr std::string_view kMore = "...";
  std::string whole = cleaned(line);
  if (whole.size() <= most) return whole;
  return cleaned(whole, most - kMore.size()) + std::string(kMore);
}

}  // namespace tendon::v0::detail
