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

/// The use that a collective makes of an argument.
enum class Touch : std::uint8_t { reads, changes };

/// The items of an iterator and the values of a dict as a list; everything else as it is. A
/// collective looks at its arguments more than once.
[[nodiscard]] nb::object taken_once(nb::object values);

/// An argument of a collective: an array, a mapping of arrays, or a list of either. It shares their
/// memory and keeps them alive.
class GroupValues {
 public:
  /// No blocks: of a member that only sends or only receives.
  GroupValues() : held_(std::vector<Tensor>()) {}
  /// `name` is how messages call it. TypeError for what is none of these, ReadOnly for memory that
  /// would be changed and may not be; else the errors of tensor_from and dict_from.
  GroupValues(nb::handle object, const std::string& name, Touch touch);

  /// Refers to this.
  [[nodiscard]] Tensors tensors() const;
  [[nodiscard]] std::uint64_t size_bytes() const;
  /// Null unless it is one array.
  [[nodiscard]] const Tensor* as_tensor() const { return std::get_if<Tensor>(&held_); }

 private:
  std::variant<Tensor, TensorDict, std::vector<Tensor>, std::vector<TensorDict>> held_;
};

}  // namespace tendon::python
