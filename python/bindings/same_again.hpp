// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "deferred.hpp"
#include "plain_memory.hpp"
#include "tensordict_api.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// Most programs send dicts of the same names, dtypes and shapes again and again. This keeps the
/// TensorDict of the last one, so that the next costs a comparison an entry: no entry is made, and
/// its schema stays the one that the pipe has announced. It knows again nested dicts of what
/// plain_memory() takes and of None, bool, int, float and str, and nested TensorDicts of
/// tensordict with nothing but such memory in them; everything else is walked each time.
///
/// It holds references to the arrays between take() and let_go() only, and needs the GIL for both.
class SameAgain final : public Deferred {
 public:
  SameAgain();
  SameAgain(const SameAgain&) = delete;
  SameAgain& operator=(const SameAgain&) = delete;
  ~SameAgain() override;

  /// False for what would be walked each time in any case.
  [[nodiscard]] static bool may_know(nb::handle object);
  /// Makes batch() this dict; TypeError and ValueError as dict_from. Precondition:
  /// may_know(object).
  void take(nb::handle object);
  [[nodiscard]] const TensorDict& batch() const { return batch_; }
  void let_go();

  // For dict_from, which reports each entry, depth first.
  /// The Tensor that dict_from puts in, so that it can be moved on to the next array.
  [[nodiscard]] Tensor note_array(nb::handle key, const std::string& path, nb::handle object,
                                  const PlainMemory& memory);
  void note_dict(nb::handle key, const std::string& path, nb::handle object);
  void note_value(nb::handle key, const std::string& path, nb::handle object, const Value& value);
  /// An entry of another kind.
  void note_other() { all_known_ = false; }

 private:
  struct Entry;
  Entry& note(nb::handle key, const std::string& path, EntryKind kind);
  [[nodiscard]] bool note_tensordict(nb::handle object, const std::string& prefix);
  [[nodiscard]] bool refill(nb::handle level);
  [[nodiscard]] bool refill_next(const std::string* place, const nb::object& key,
                                 const nb::object& object);
  [[nodiscard]] bool refill_entry(Entry& entry, nb::handle object);
  void forget();

  TensorDict batch_;
  std::optional<TensordictLevel> level_;  // none: a dict
  std::vector<Entry> entries_;
  std::size_t at_ = 0;  // of refill
  bool all_known_ = true;
};

}  // namespace tendon::python
