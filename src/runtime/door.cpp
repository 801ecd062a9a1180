// SPDX-License-Identifier: Apache-2.0
#include "runtime/door.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {

template <class F>
std::size_t Door::count(F condition) const {
  return static_cast<std::size_t>(std::count_if(places_.begin(), places_.end(), condition));
}

Door::Number Door::displace(std::vector<Place>::iterator place) {
  const Number number = place->number;
  places_.erase(place);
  return number;
}

Door::Verdict Door::enter(Number number, const std::optional<Source>& source, Time now) {
  const auto is_silent = [](const Place& place) { return place.stage == Stage::silent; };
  const auto is_of_source = [&](const Place& place) { return source && place.source == source; };
  const auto is_both = [&](const Place& place) { return is_silent(place) && is_of_source(place); };
  Verdict verdict{.stays = true, .displaced = std::nullopt};
  if (count(is_of_source) >= kConnectionsPerSource) {
    const auto oldest = std::find_if(places_.begin(), places_.end(), is_both);
    if (oldest == places_.end()) return {};
    verdict.displaced = displace(oldest);
  } else if (count(is_silent) >= most_silent_) {
    verdict.displaced = displace(std::find_if(places_.begin(), places_.end(), is_silent));
  }
  places_.push_back({number, source, Stage::silent, now, now});
  return verdict;
}

Door::Verdict Door::answer(Number number, Time now) { return go_on(number, Stage::answered, now); }

Door::Verdict Door::hear(Number number, Time now) { return go_on(number, Stage::handshake, now); }

Door::Verdict Door::go_on(Number number, Stage stage, Time now) {
  const auto place = std::ranges::find(places_, number, &Place::number);
  if (place == places_.end()) return {};
  const auto has_begun = [](const Place& other) { return other.stage != Stage::silent; };
  const bool needs_place = !has_begun(*place) && count(has_begun) >= kHandshakesPerListener;
  // A connection that was answered but is not yet known leaves first, else the one whose last frame
  // is the oldest.
  const auto goes = std::ranges::min_element(
      places_, {}, [](const Place& other) { return std::pair(other.stage, other.last_heard); });
  if (needs_place && goes->stage == Stage::handshake &&
      now - goes->last_heard < kFirstFrameTimeout) {
    displace(place);
    return {};
  }
  if (stage == Stage::handshake || place->stage == Stage::silent) place->stage = stage;
  place->last_heard = now;
  Verdict verdict{.stays = true, .displaced = std::nullopt};
  if (needs_place) verdict.displaced = displace(goes);
  return verdict;
}

void Door::leave(Number number) {
  std::erase_if(places_, [&](const Place& place) { return place.number == number; });
}

Door::Time Door::due(Number number) const {
  for (const Place& place : places_) {
    if (place.number != number) continue;
    return place.since + (place.stage == Stage::silent ? kFirstFrameTimeout : kHandshakeTimeout);
  }
  return Time::min();
}

}  // namespace tendon::v0::detail
