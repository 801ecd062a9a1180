// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "deferred.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// Most programs send dicts of the same names, dtypes and shapes again and again. This keeps the
/// TensorDict of the last one, so that the next costs a comparison an entry: no entry is made, and
/// its schema stays the one that the pipe has announced.
///
/// It holds references to the arrays between take() and let_go() only, and needs the GIL for both.
class SameAgain final : public Deferred {
 public:
  SameAgain();
  SameAgain(const SameAgain&) = delete;
  SameAgain& operator=(const SameAgain&) = delete;
  ~SameAgain() override;

  /// True: batch() is this dict. False for everything but nested dicts of row-major numpy.ndarrays
  /// and of None, bool, int, float and str; then it holds nothing. Mistakes are such a case too:
  /// dict_from has the words for them.
  [[nodiscard]] bool take(nb::handle dict);
  [[nodiscard]] const TensorDict& batch() const { return batch_; }
  void let_go();

 private:
  struct Entry;
  [[nodiscard]] bool build(nb::handle dict, const std::string& prefix, std::size_t depth);
  [[nodiscard]] bool refill(nb::handle dict);
  [[nodiscard]] bool refill_entry(Entry& entry, nb::handle object);
  void forget();

  TensorDict batch_;
  std::vector<Entry> entries_;  // depth first
  std::size_t at_ = 0;          // of refill
  std::size_t refusals_ = 0;    // takes that are not tried: the last one was in vain
};

}  // namespace tendon::python
