// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "tensor/tree.hpp"

namespace tendon::v0 {

Result<TensorDict> make_packed(std::shared_ptr<const Schema> schema, Layout layout, Storage storage,
                               std::shared_ptr<const Value> values) {
  if (storage.size_bytes() < schema->layout(layout).total_bytes) {
    return Error(ErrorCode::invalid_argument, "tensor.packed",
                 "a storage of " + std::to_string(storage.size_bytes()) +
                     " bytes for leaves that need " +
                     std::to_string(schema->layout(layout).total_bytes));
  }
  if (values) TENDON_CHECK(detail::check_values(*schema, *values));
  TensorDict dict;
  dict.packed_ = {std::move(schema), std::move(storage), std::move(values), layout};
  return dict;
}

std::optional<TensorDict> packed_in(const TensorDict& dict, const Storage& storage, Layout layout) {
  const PackedLayout& wanted = dict.schema()->layout(layout);
  if (storage.size_bytes() < wanted.total_bytes) return std::nullopt;
  for (std::size_t i = 0; i < dict.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(dict, i);
    const bool there = leaf.contiguous && leaf.device == storage.device() &&
                       leaf.data == storage.data() + wanted.offsets[i];
    if (leaf.size_bytes != 0 && !there) return std::nullopt;
  }
  auto made = make_packed(dict.schema(), layout, storage, dict.values());
  return made ? std::optional(*std::move(made)) : std::nullopt;
}

LeafView leaf_view(const TensorDict& dict, std::size_t index) {
  if (const PackedView* packed = packed_view(dict)) {
    return {packed->storage.data() + packed->schema->layout(packed->layout).offsets[index],
            packed->schema->leaves()[index].size_bytes, true, packed->storage.device()};
  }
  const Tensor& tensor = *dict.tree_->get_leaves()[index];
  return {tensor.data(), tensor.size_bytes(), tensor.is_contiguous(), tensor.device()};
}

}  // namespace tendon::v0
