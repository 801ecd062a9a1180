// SPDX-License-Identifier: Apache-2.0
#include "transport/device_offers.hpp"

#include <algorithm>
#include <tendon/session/limits.hpp>

#include "transport/device_word.hpp"

namespace tendon::v0::detail {

Descriptor DeviceOffers::offer(std::uint32_t number, const cuda::Uuid& gpu) noexcept {
  return device_word(DeviceWord::offer, number, gpu);
}

std::optional<std::uint32_t> DeviceOffers::find(const cuda::Uuid& gpu) const {
  const auto found = std::ranges::find(own_, gpu);
  if (found == own_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - own_.begin());
}

bool DeviceOffers::is_full() const noexcept { return own_.size() >= kMaxDevicesPerLink; }

std::string_view DeviceOffers::take_in(const Descriptor& word, Features features) {
  if (!features.has(Feature::devices)) return "a GPU was offered without the feature `devices`";
  if (word.tag != static_cast<std::uint32_t>(DeviceWord::offer))
    return "an unknown word about a GPU";
  if (word.schema != peers_.size()) return "a GPU was offered out of order";
  if (peers_.size() >= kMaxDevicesPerLink) return "more GPUs than kMaxDevicesPerLink";
  const cuda::Uuid gpu = uuid_of(word);
  if (std::ranges::find(peers_, gpu) != peers_.end()) return "a GPU was offered twice";
  peers_.push_back(gpu);
  return {};
}

}  // namespace tendon::v0::detail
