// SPDX-License-Identifier: Apache-2.0
#include <tendon/tensor/loan.hpp>

namespace tendon::inline v0 {

Result<void> Loan::try_set(std::string_view path, Value value) {
  const PackedView* packed = dict_.packed();
  if (packed == nullptr) {
    return Error{
        ErrorCode::not_found, "loan.set",
        "the loan is empty (it was sent): no value '" + std::string(path) + "' can be set"};
  }
  // Set on a dict of values alone first, so that paths and limits are checked by the one place that
  // knows.
  TensorDict checked;
  Value::Map values = packed->values ? packed->values->as_map() : Value::Map();
  for (const auto& [key, held] : values) TENDON_CHECK(checked.try_set(key, held));
  TENDON_CHECK(checked.try_set(path, value));
  if (packed->schema->find(path)) {
    return Error{ErrorCode::invalid_argument, "loan.set",
                 "'" + std::string(path) + "' is a leaf of the schema, not non-tensor data"};
  }
  TENDON_TRY(renewed, TensorDict::from_packed(packed->schema, packed->layout, packed->storage,
                                              checked.values()));
  dict_ = std::move(renewed);
  return {};
}

}  // namespace tendon::inline v0
