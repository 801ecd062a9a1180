// SPDX-License-Identifier: Apache-2.0
// The packed form of a TensorDict, for programs that bring memory of their own: another library's
// buffer, a file, a device. A TensorDict is packed as it is received or loaned, and becomes a tree
// when it is changed.
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

/// A TensorDict whose leaves lie in memory packed by `layout`; `values` is nullptr or a map from
/// path to value, as TensorDict::values() returns it. Allocates nothing. Errors: invalid_argument
/// when the storage is too small.
[[nodiscard]] TENDON_API Result<TensorDict> make_packed(
    std::shared_ptr<const Schema> schema, Layout layout, Storage storage,
    std::shared_ptr<const Value> values = nullptr);
/// The same in packed form, when every leaf lies in `storage` already, where `layout` puts it; else
/// nullopt. Copies nothing.
[[nodiscard]] TENDON_API std::optional<TensorDict> packed_in(const TensorDict& dict,
                                                             const Storage& storage, Layout layout);
/// The packed form, nullptr when `dict` is a tree. Valid until `dict` is changed or destroyed.
[[nodiscard]] inline const PackedView* packed_view(const TensorDict& dict) noexcept {
  return dict.packed_.schema ? &dict.packed_ : nullptr;
}
/// Where a leaf's elements are. Precondition: index < dict.leaf_count().
[[nodiscard]] TENDON_API LeafView leaf_view(const TensorDict& dict, std::size_t index);

}  // namespace v0
}  // namespace tendon
