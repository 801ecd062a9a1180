// SPDX-License-Identifier: Apache-2.0
#include "group/membership/occupants.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {

std::optional<std::uint32_t> Occupants::place_of(const MemberChannel& channel) const {
  const auto found =
      std::ranges::find_if(channels_, [&](const auto& each) { return each.get() == &channel; });
  if (found == channels_.end()) return {};
  return static_cast<std::uint32_t>(found - channels_.begin());
}

std::shared_ptr<MemberChannel> Occupants::put(std::uint32_t place,
                                              std::shared_ptr<MemberChannel> channel) {
  std::erase_if(replaced_, [](const Replaced& each) { return each.channel.expired(); });
  const auto loss = channel->loss();
  auto before = std::exchange(channels_[place], std::move(channel));
  if (before != nullptr) replaced_.push_back({before, place});
  lost_.erase(place);
  if (loss) lost_.emplace(place, Lost{channels_[place], *loss, Absence::assumed});
  return before;
}

std::optional<std::uint32_t> Occupants::lose(MemberChannel& channel, const Error& error,
                                             Absence how) {
  if (const auto place = place_of(channel)) {
    lost_.insert_or_assign(*place, Lost{channel.shared_from_this(), error, how});
    return place;
  }
  const auto replaced = std::ranges::find_if(
      replaced_, [&](const Replaced& each) { return each.channel.lock().get() == &channel; });
  return replaced != replaced_.end() ? std::optional(replaced->place) : std::nullopt;
}

std::vector<std::shared_ptr<MemberChannel>> Occupants::clear() {
  for (auto& [place, lost] : lost_) lost.channel.reset();
  return std::exchange(channels_, std::vector<std::shared_ptr<MemberChannel>>(channels_.size()));
}

}  // namespace tendon::v0::detail
