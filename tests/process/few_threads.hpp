// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostream>
#include <tendon/core/result.hpp>

namespace tendon::test {

/// Something that takes threads.
struct Maker {
  const char* name;
  int enough;                          ///< with room for so many threads it is made
  std::function<Result<void>()> make;  ///< makes it, uses it, and lets go of it
  /// Works once the limit is gone, whatever came before; empty: as `make`.
  std::function<Result<void>()> afterwards = {};
};
inline void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

/// In a process that may start 0, 1, 2 ... further threads it is made whole, or is an error that
/// says so and can be made later. Nothing aborts or waits for ever.
void expect_whole_or_error(const Maker& maker);

}  // namespace tendon::test
