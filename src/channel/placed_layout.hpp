// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/tensor/schema.hpp>
#include <vector>

#include "channel/placement.hpp"

namespace tendon::v0::detail {

/// Where the leaves of a message lie whose tensors on a GPU stay there: those of host memory in its
/// payload, the others in its device part. Each of the two is packed as Layout::aligned packs a
/// schema of these leaves alone, so a batch that lies on the GPU whole is packed there by
/// Layout::aligned.
struct PlacedLayout {
  std::vector<std::uint64_t> offsets;  ///< by leaf, in its own run [bytes]
  std::uint64_t host_bytes = 0;
  std::uint64_t gpu_bytes = 0;
};

[[nodiscard]] PlacedLayout placed_layout(const Schema& schema, const Placement& placement);

}  // namespace tendon::v0::detail
