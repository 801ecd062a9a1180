// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "deferred.hpp"
#include "numpy_api.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// Most programs send dicts of the same names, dtypes and shapes again and again. This keeps the
/// TensorDict of the last one, so that the next costs a comparison an entry: no entry is made, and
/// its schema stays the one that the pipe has announced. It knows again nested dicts of row-major
/// numpy.ndarrays and of None, bool, int, float and str; everything else is walked each time.
///
/// It holds references to the arrays between take() and let_go() only, and needs the GIL for both.
class SameAgain final : public Deferred {
 public:
  SameAgain();
  SameAgain(const SameAgain&) = delete;
  SameAgain& operator=(const SameAgain&) = delete;
  ~SameAgain() override;

  /// Makes batch() this dict; TypeError and ValueError as dict_from.
  void take(nb::handle dict);
  [[nodiscard]] const TensorDict& batch() const { return batch_; }
  void let_go();

  // For dict_from, which tells of each entry as it comes to it, depth first.
  /// The Tensor that dict_from puts in, so that it can be moved on to the next array.
  [[nodiscard]] Tensor note_array(nb::handle key, const std::string& path, nb::handle object,
                                  const PlainArray& array);
  void note_dict(nb::handle key, const std::string& path, nb::handle object);
  void note_value(nb::handle key, const std::string& path, nb::handle object, const Value& value);
  /// An entry of another kind.
  void note_other() { all_known_ = false; }

 private:
  struct Entry;
  Entry& note(nb::handle key, const std::string& path, EntryKind kind);
  [[nodiscard]] bool refill(nb::handle dict);
  [[nodiscard]] bool refill_entry(Entry& entry, nb::handle object);
  void forget();

  TensorDict batch_;
  std::vector<Entry> entries_;
  std::size_t at_ = 0;  // of refill
  bool all_known_ = true;
};

}  // namespace tendon::python
