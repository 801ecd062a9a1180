// SPDX-License-Identifier: Apache-2.0
// Objects of tensordict. A program that has not imported it pays one look-up in sys.modules.
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The module tendon.tensordict, which converts tensordict's objects; null before the program
/// imports tensordict.
[[nodiscard]] nb::handle tensordict_adapter();

/// True for exactly a tensordict.TensorDict that was not consolidated. The buffer of a consolidated
/// one is sent as a whole.
[[nodiscard]] bool is_plain_tensordict(nb::handle object);

/// The attributes of a TensorDict besides its entries.
class TensordictLevel {
 public:
  /// Precondition: is_plain_tensordict(object).
  explicit TensordictLevel(nb::handle object);
  [[nodiscard]] bool equals(const TensordictLevel& other) const;

 private:
  nb::object batch_size_;
  nb::object names_;
  nb::object device_;
  bool is_locked_;
};

/// Entries of a TensorDict: a list or view of pairs. Precondition: is_plain_tensordict(object).
[[nodiscard]] nb::object tensordict_items(nb::handle object);

/// The parts of a TensorDict of tensordict.
struct BatchLevel {
  nb::tuple batch_size;
  nb::object names;  // a list, or None
  nb::dict entries;  // name -> torch.Tensor or BatchLevel
  nb::dict values;   // name -> value
};

/// Makes the batch of a root level, on the same memory. A level is a tuple here, which is cheaper
/// in Python: (batch size, names, entries: name -> array or level, values: name -> value). Errors
/// name the path: those of tensor_from, and a TypeError for an entry that is not an array.
[[nodiscard]] TensorDict dict_of_levels(const nb::tuple& root);

/// The root level of a batch, on the same memory.
[[nodiscard]] BatchLevel levels_of(const TensorDict& batch);

}  // namespace tendon::python
