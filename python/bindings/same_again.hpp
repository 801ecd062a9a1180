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

/// Remembers the TensorDict of the last dict, because most programs send dicts of the same names,
/// dtypes and shapes repeatedly. The next dict then costs a comparison per entry: no entry is made,
/// and the schema stays the one that the pipe has announced. It recognizes nested dicts of
/// plain_memory() objects, None, bool, int, float and str. It also recognizes nested TensorDicts of
/// tensordict with only such memory. It walks everything else each time.
///
/// It holds references to the arrays only between take() and let_go(). Both need the GIL.
class SameAgain final : public Deferred {
 public:
  SameAgain();
  SameAgain(const SameAgain&) = delete;
  SameAgain& operator=(const SameAgain&) = delete;
  ~SameAgain() override;

  /// False for objects that are always walked.
  [[nodiscard]] static bool may_know(nb::handle object);
  /// Makes batch() equal to the dict; TypeError and ValueError as dict_from. Precondition:
  /// may_know(object).
  void take(nb::handle object);
  [[nodiscard]] const TensorDict& batch() const { return batch_; }
  void let_go();

  // dict_from calls these for each entry, depth first.
  /// Returns the Tensor for dict_from's batch; it is later moved to the next array.
  [[nodiscard]] Tensor note_array(nb::handle key, const std::string& path, nb::handle object,
                                  const PlainMemory& memory);
  void note_dict(nb::handle key, const std::string& path, nb::handle object);
  void note_value(nb::handle key, const std::string& path, nb::handle object, const Value& value);
  /// Notes an entry of another kind.
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
  std::size_t at_ = 0;  // the place of refill()
  bool all_known_ = true;
};

}  // namespace tendon::python
