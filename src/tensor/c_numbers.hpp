// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fenv.h>

#include "core/c_locale.hpp"
#include "core/float_mode.hpp"

namespace tendon::v0::detail {

/// While it lives, this thread reads numbers with a decimal point and to the nearest, whatever
/// locale and mode of arithmetic the program has chosen. The JSON library reads them through
/// strtod(), which follows both.
///
/// Owns:    nothing; it restores the thread's locale and mode.
/// Threads: its own alone.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    some 10 ns.
class CNumbers {
 public:
  CNumbers() noexcept : rounding_(fegetround()) {
    fesetround(FE_TONEAREST);  // strtod() uses the x87 unit, which DefaultFloatMode leaves alone
  }
  CNumbers(const CNumbers&) = delete;
  CNumbers& operator=(const CNumbers&) = delete;
  ~CNumbers() { fesetround(rounding_); }

 private:
  const DefaultFloatMode mode_;
  const CLocale locale_;
  const int rounding_;
};

}  // namespace tendon::v0::detail
