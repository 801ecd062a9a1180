// SPDX-License-Identifier: Apache-2.0
// The packed form of a TensorDict, for programs that have memory of their own: another library's
// buffer, or a file. A received or loaned TensorDict is packed, and becomes a tree when it is
// changed.
//
//   const auto schema = batch.schema();
//   Storage storage = Storage::allocate(schema->layout(Layout::aligned).total_bytes).value();
//   TensorDict packed = make_packed(schema, Layout::aligned, storage).value();
//   const LeafView first = leaf_view(packed, 0);  // first.data lies in `storage`
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/packed_view.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon {
inline namespace v0 {

/// Makes a TensorDict whose leaves lie in memory packed by `layout`. `values` is nullptr or a map
/// from path to value, as TensorDict::values() returns it. Allocates nothing. Errors:
/// invalid_argument when the storage is too small, and for values that do not fit the schema.
/// Precondition: `schema` is not null.
[[nodiscard]] TENDON_API Result<TensorDict> make_packed(
    std::shared_ptr<const Schema> schema, Layout layout, Storage storage,
    std::shared_ptr<const Value> values = nullptr);
/// Returns `dict` in packed form, if all of its leaves lie in `storage` already, as `layout` places
/// them; else nullopt. The leaves must be without gaps. Copies nothing.
[[nodiscard]] TENDON_API std::optional<TensorDict> packed_in(const TensorDict& dict,
                                                             const Storage& storage, Layout layout);
/// The packed form, nullptr when `dict` is a tree. Valid until `dict` is changed or destroyed.
[[nodiscard]] inline const PackedView* packed_view(const TensorDict& dict) noexcept {
  return dict.packed_.schema ? &dict.packed_ : nullptr;
}
/// The place of a leaf's elements. Precondition: index < dict.leaf_count().
[[nodiscard]] TENDON_API LeafView leaf_view(const TensorDict& dict, std::size_t index);

}  // namespace v0
}  // namespace tendon
