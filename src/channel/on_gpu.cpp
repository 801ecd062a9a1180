// SPDX-License-Identifier: Apache-2.0
#include "channel/on_gpu.hpp"

#include <tendon/tensor/packed.hpp>
#include <vector>

#include "channel/to_host.hpp"
#include "cuda/address.hpp"

namespace tendon::v0::detail {

Result<void> pack_on_gpu(const TensorDict& batch, const PlacedLayout& layout,
                         cuda::DeviceAddress address, cuda::StreamWork& work, Deadline deadline) {
  if (const PackedView* const packed = packed_alike(batch);
      packed != nullptr && packed->storage.device() != cpu())
    return work.copy(address, cuda::address_of(packed->storage.data()), layout.gpu_bytes);
  std::vector<cuda::GatherEntry> small;
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device == cpu() || leaf.size_bytes == 0) continue;
    const cuda::DeviceAddress destination = address + layout.offsets[i];
    if (leaf.size_bytes < kLargeLeafBytes)
      small.push_back({destination, cuda::address_of(leaf.data), leaf.size_bytes});
    else
      TENDON_CHECK(work.copy(destination, cuda::address_of(leaf.data), leaf.size_bytes));
  }
  if (small.size() > 1) {
    if (const auto kernel = work.gpu().gather_kernel().function(earlier(deadline, kGatherPatience)))
      return work.gather(*kernel, small);
  }
  for (const cuda::GatherEntry& each : small)
    TENDON_CHECK(work.copy(each.destination, each.source, each.size_bytes));
  return {};
}

}  // namespace tendon::v0::detail
