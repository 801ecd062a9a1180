// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostream>
#include <tendon/core/result.hpp>

namespace tendon::test {

/// An operation that takes threads.
struct Maker {
  const char* name;
  int enough;                          ///< with room for so many threads it succeeds
  std::function<Result<void>()> make;  ///< makes an object, uses it, and drops it
  /// Works after the limit is lifted, whatever happened before; empty: as `make`.
  std::function<Result<void>()> afterwards = {};
};
inline void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

/// Calls it in processes that may start 0, 1, 2 ... further threads: it succeeds, or returns an
/// error that names the threads and succeeds later. Nothing aborts or waits for ever.
void expect_whole_or_error(const Maker& maker);

}  // namespace tendon::test
