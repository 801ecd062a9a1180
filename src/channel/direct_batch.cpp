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

Result<TensorDict> direct_batch(DirectMessage message, std::shared_ptr<const void> owner) {
  const DeviceBody& body = *message.body;
  const Schema& schema = *message.schema;
  auto* const data = reinterpret_cast<std::byte*>(body.address());
  const Storage on_gpu(std::move(owner), data, body.part().size_bytes, Access::read_only,
                       Origin::peer_slot, body.gpu()->context()->device());
  if (message.placement->is_all_on_gpu())
    return make_packed(std::move(message.schema), Layout::aligned, on_gpu,
                       std::move(message.values));
  const PlacedLayout layout = placed_layout(schema, *message.placement);
  std::vector<Tensor> leaves;
  leaves.reserve(schema.leaves().size());
  for (std::size_t i = 0; i < schema.leaves().size(); ++i) {
    const SchemaLeaf& leaf = schema.leaves()[i];
    const Storage& where = message.placement->is_on_gpu(i) ? on_gpu : message.host;
    TENDON_TRY(tensor, Tensor::view(where, layout.offsets[i], leaf.dtype, leaf.shape));
    leaves.push_back(std::move(tensor));
  }
  return Tree::of_leaves(std::move(message.schema), leaves, std::move(message.values));
}

}  // namespace tendon::v0::detail
