// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <tendon/group/tensors.hpp>
#include <variant>
#include <vector>

namespace tendon::python {

namespace nb = nanobind;

/// How a collective uses an argument.
enum class Touch : std::uint8_t { reads, changes };

/// Returns the items of an iterator or the values of a dict as a list, and everything else
/// unchanged: a collective reads its arguments more than once.
[[nodiscard]] nb::object taken_once(nb::object values);

/// An argument of a collective: an array, a mapping of arrays, or a list of either. Shares their
/// memory and keeps them alive.
class GroupValues {
 public:
  /// No blocks: for a member that only sends or only receives.
  GroupValues() : held_(std::vector<Tensor>()) {}
  /// Messages call the object `name`. TypeError for other types, ReadOnly for read-only memory that
  /// would change; else the errors of tensor_from and dict_from.
  GroupValues(nb::handle object, const std::string& name, Touch touch);

  /// The result refers to this object.
  [[nodiscard]] Tensors tensors() const;
  [[nodiscard]] std::uint64_t size_bytes() const;
  /// Null unless this is one array.
  [[nodiscard]] const Tensor* as_tensor() const { return std::get_if<Tensor>(&held_); }

 private:
  std::variant<Tensor, TensorDict, std::vector<Tensor>, std::vector<TensorDict>> held_;
};

}  // namespace tendon::python
