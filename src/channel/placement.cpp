// SPDX-License-Identifier: Apache-2.0
#include "channel/placement.hpp"

#include <algorithm>
#include <string>

namespace tendon::v0::detail {
namespace {

Error fault(ErrorCode code, std::string detail) {
  return Error{code, "channel.schema", std::move(detail)};
}

}  // namespace

bool Placement::is_all_on_gpu() const noexcept {
  return std::ranges::none_of(leaves, [](std::uint8_t leaf) { return leaf == 0; });
}

std::shared_ptr<const Placement> Placement::numbered(
    const std::shared_ptr<const Placement>& placement, std::uint32_t number) {
  const auto byte = static_cast<std::uint8_t>(number + 1);
  const auto differs = [byte](std::uint8_t leaf) { return leaf != 0 && leaf != byte; };
  if (std::ranges::none_of(placement->leaves, differs)) return placement;
  auto renumbered = std::make_shared<Placement>(*placement);
  std::ranges::replace_if(renumbered->leaves, differs, byte);
  return renumbered;
}

Result<std::shared_ptr<const Placement>> Placement::read(Bytes said, std::size_t leaf_count,
                                                         const DeviceOffers& offers) {
  if (said.size() != leaf_count) {
    return fault(ErrorCode::corrupt_data, "said where " + std::to_string(said.size()) +
                                              " leaves lie, of a schema of " +
                                              std::to_string(leaf_count));
  }
  auto placement = std::make_shared<Placement>();
  placement->leaves.reserve(leaf_count);
  std::uint8_t first = 0;
  for (const std::byte each : said) {
    const auto leaf = static_cast<std::uint8_t>(each);
    placement->leaves.push_back(leaf);
    if (leaf == 0 || leaf == first) continue;
    if (first != 0) {
      return fault(ErrorCode::unsupported_device,
                   "sent leaves of its GPUs " + std::to_string(first - 1) + " and " +
                       std::to_string(leaf - 1) + " in one batch; send those of each GPU apart");
    }
    const cuda::Uuid* const gpu = offers.of_peer(leaf - 1u);
    if (gpu == nullptr) {
      return fault(ErrorCode::corrupt_data, "sent leaves of its GPU " + std::to_string(leaf - 1) +
                                                ", which it had not offered");
    }
    first = leaf;
    placement->gpu = *gpu;
  }
  if (first == 0) return std::shared_ptr<const Placement>();
  return std::shared_ptr<const Placement>(std::move(placement));
}

}  // namespace tendon::v0::detail
