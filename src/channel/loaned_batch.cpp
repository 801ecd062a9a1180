// SPDX-License-Identifier: Apache-2.0
#include "channel/loaned_batch.hpp"

#include <tendon/tensor/packed.hpp>
#include <utility>

#include "cuda/address.hpp"

namespace tendon::v0::detail {
namespace {

/// The slot of `pool` that contains this memory, if nobody may write it.
std::shared_ptr<cuda::DeviceSlot> sealed_slot_of(const Storage& storage,
                                                 const cuda::DevicePool& pool) {
  if (storage.access() != Access::read_only) return nullptr;
  const auto* const loan = cuda::LoanedDeviceSlot::find(storage);
  return loan == nullptr || &loan->slot()->pool() != &pool ? nullptr : loan->slot();
}

}  // namespace

Result<TensorDict> sealed_loan(const TensorDict& batch, cuda::LoanedDeviceSlot& loan,
                               const ContextCore& context, std::string_view where) {
  if (&loan.slot()->pool() != context.memory().passed->of(loan.gpu()).get()) {
    return Error{ErrorCode::wrong_link, where,
                 "the loan was taken from another Context; one on a GPU goes on pipes and "
                 "publishers of its own Context alone"};
  }
  loan.note_sealed();
  const PackedView& packed = *packed_view(batch);
  return make_packed(packed.schema, packed.layout, packed.storage.read_only(), packed.values);
}

std::shared_ptr<cuda::DeviceSlot> loaned_slot_of(const TensorDict& batch,
                                                 const PlacedLayout& layout,
                                                 const cuda::DevicePool& pool) {
  const bool is_one_storage = packed_view(batch) != nullptr;
  std::shared_ptr<cuda::DeviceSlot> slot;
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device == cpu() || leaf.size_bytes == 0) continue;
    if (slot == nullptr || !is_one_storage) {
      auto of_leaf = sealed_slot_of(batch.leaf(i).storage(), pool);
      // Slots lie side by side: a leaf in the next one may be at the expected address.
      if (of_leaf == nullptr || (slot != nullptr && of_leaf != slot)) return nullptr;
      slot = std::move(of_leaf);
    }
    if (cuda::address_of(leaf.data) != slot->address() + layout.offsets[i]) return nullptr;
  }
  return slot;
}

}  // namespace tendon::v0::detail
