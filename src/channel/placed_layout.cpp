// SPDX-License-Identifier: Apache-2.0
#include "channel/placed_layout.hpp"

#include <tendon/tensor/layout.hpp>

namespace tendon::v0::detail {

PlacedLayout placed_layout(const Schema& schema, const Placement& placement) {
  const auto leaves = schema.leaves();
  PlacedLayout layout;
  layout.offsets.reserve(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    std::uint64_t& end = placement.is_on_gpu(i) ? layout.gpu_bytes : layout.host_bytes;
    const std::uint64_t offset =
        (end + kLeafAlignmentBytes - 1) / kLeafAlignmentBytes * kLeafAlignmentBytes;
    layout.offsets.push_back(offset);
    end = offset + leaves[i].size_bytes;
  }
  return layout;
}

}  // namespace tendon::v0::detail
