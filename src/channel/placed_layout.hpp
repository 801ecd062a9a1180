// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/tensor/schema.hpp>
#include <vector>

#include "channel/placement.hpp"

namespace tendon::v0::detail {

/// The places of a message's leaves whose tensors on a GPU stay there: leaves in host memory lie in
/// its payload, the others in its device part. Each part is packed as Layout::aligned packs a
/// schema of these leaves alone, so a batch that is all on the GPU is packed there by
/// Layout::aligned.
struct PlacedLayout {
  std::vector<std::uint64_t> offsets;  ///< by leaf, in its own run [bytes]
  std::uint64_t host_bytes = 0;
  std::uint64_t gpu_bytes = 0;
};

[[nodiscard]] PlacedLayout placed_layout(const Schema& schema, const Placement& placement);

}  // namespace tendon::v0::detail
