// SPDX-License-Identifier: Apache-2.0
#include <tendon/tensor/loan.hpp>
#include <tendon/tensor/packed.hpp>

namespace tendon::v0 {

Result<void> Loan::try_set(std::string_view path, Value value) {
  const PackedView* packed = packed_view(dict_);
  if (packed == nullptr) {
    return Error{
        ErrorCode::not_found, "loan.set",
        "the loan is empty (it was sent): no value '" + std::string(path) + "' can be set"};
  }
  // Made a tree first, which checks the path and makes the dicts above it; the leaves stay in
  // place.
  TensorDict changed = dict_;
  TENDON_CHECK(changed.try_set(path, std::move(value)));
  if (changed.leaf_count() != dict_.leaf_count()) {
    return Error{ErrorCode::invalid_argument, "loan.set",
                 "'" + std::string(path) + "' is a tensor of the schema, not non-tensor data"};
  }
  TENDON_TRY(renewed,
             make_packed(changed.schema(), packed->layout, packed->storage, changed.values()));
  dict_ = std::move(renewed);
  return {};
}

Result<TensorDict> Loan::freeze() && {
  constexpr std::string_view kHere = "loan.freeze";
  if (empty()) {
    return Error{ErrorCode::invalid_argument, kHere,
                 "the loan is empty: it was sent before; take a new one"};
  }
  if (device_slot_ == nullptr) {
    return Error{ErrorCode::not_supported, kHere,
                 "the loan lies in host memory, where it is for one peer or one publisher: send or "
                 "publish it, or send a TensorDict, which is copied for each"};
  }
  const PackedView& packed = *packed_view(dict_);
  TENDON_TRY(frozen,
             make_packed(packed.schema, packed.layout, packed.storage.read_only(), packed.values));
  clear();
  return frozen;
}

}  // namespace tendon::v0
