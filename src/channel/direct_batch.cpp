// SPDX-License-Identifier: Apache-2.0
#include "channel/direct_batch.hpp"

#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "channel/placed_layout.hpp"
#include "cuda/gpu.hpp"
#include "tensor/tree.hpp"

namespace tendon::v0::detail {

std::string_view check_direct(const DirectMessage& message, const Descriptor& descriptor) {
  if (message.placement == nullptr) return "it has a device part, and its leaves none on a GPU";
  if (descriptor.layout != Layout::aligned) return "it has a device part in an unknown layout";
  const PlacedLayout layout = placed_layout(*message.schema, *message.placement);
  if (layout.host_bytes != descriptor.payload_bytes)
    return "its leaves in host memory have another length than its payload";
  if (layout.gpu_bytes != message.body->part().size_bytes)
    return "its leaves on the GPU have another length than its device part";
  if (message.body->failure() != nullptr) return {};
  if (message.placement->gpu != message.body->gpu()->context()->uuid())
    return "its leaves lie on another GPU than its device part";
  return {};
}

Result<TensorDict> placed_batch(PlacedBatch parts) {
  const Schema& schema = *parts.schema;
  if (parts.placement.is_all_on_gpu())
    return make_packed(std::move(parts.schema), Layout::aligned, std::move(parts.on_gpu),
                       std::move(parts.values));
  const PlacedLayout layout = placed_layout(schema, parts.placement);
  std::vector<Tensor> leaves;
  leaves.reserve(schema.leaves().size());
  for (std::size_t i = 0; i < schema.leaves().size(); ++i) {
    const SchemaLeaf& leaf = schema.leaves()[i];
    const Storage& where = parts.placement.is_on_gpu(i) ? parts.on_gpu : parts.host;
    TENDON_TRY(tensor, Tensor::view(where, layout.offsets[i], leaf.dtype, leaf.shape));
    leaves.push_back(std::move(tensor));
  }
  return Tree::of_leaves(std::move(parts.schema), leaves, std::move(parts.values));
}

Result<TensorDict> direct_batch(DirectMessage message, std::shared_ptr<const void> owner) {
  const DeviceBody& body = *message.body;
  auto* const data = reinterpret_cast<std::byte*>(body.address());
  Storage on_gpu(std::move(owner), data, body.part().size_bytes, Access::read_only,
                 Origin::peer_slot, body.gpu()->context()->device());
  return placed_batch({std::move(message.schema), *message.placement, std::move(on_gpu),
                       std::move(message.host), std::move(message.values)});
}

}  // namespace tendon::v0::detail
