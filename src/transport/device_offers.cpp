// SPDX-License-Identifier: Apache-2.0
#include "transport/device_offers.hpp"

#include <algorithm>
#include <cstring>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {
namespace {

constexpr std::uint32_t kOffer = 1;
static_assert(offsetof(Descriptor, offset) == offsetof(Descriptor, generation) + 8 &&
              sizeof(cuda::Uuid) == 16);

}  // namespace

Descriptor DeviceOffers::offer(std::uint32_t number, const cuda::Uuid& gpu) noexcept {
  Descriptor word;
  word.kind = MessageKind::device;
  word.tag = kOffer;
  word.schema = number;
  std::memcpy(&word.generation, gpu.bytes.data(), 8);
  std::memcpy(&word.offset, gpu.bytes.data() + 8, 8);
  return word;
}

std::optional<std::uint32_t> DeviceOffers::find(const cuda::Uuid& gpu) const {
  const auto found = std::ranges::find(own_, gpu);
  if (found == own_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - own_.begin());
}

bool DeviceOffers::is_full() const noexcept { return own_.size() >= kMaxDevicesPerLink; }

std::string_view DeviceOffers::take_in(const Descriptor& word, Features features) {
  if (!features.has(Feature::devices)) return "a GPU was offered without the feature `devices`";
  if (word.tag != kOffer) return "an unknown word about a GPU";
  if (word.schema != peers_.size()) return "a GPU was offered out of order";
  if (peers_.size() >= kMaxDevicesPerLink) return "more GPUs than kMaxDevicesPerLink";
  cuda::Uuid gpu;
  std::memcpy(gpu.bytes.data(), &word.generation, 8);
  std::memcpy(gpu.bytes.data() + 8, &word.offset, 8);
  if (std::ranges::find(peers_, gpu) != peers_.end()) return "a GPU was offered twice";
  peers_.push_back(gpu);
  return {};
}

}  // namespace tendon::v0::detail
