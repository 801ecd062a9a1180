// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <locale.h>

namespace tendon::v0::detail {

/// While it lives, this thread reads and writes numbers with a decimal point, whatever locale the
/// program has chosen: the JSON library reads them through strtod().
///
/// Owns:    nothing; it puts the thread's locale back.
/// Threads: its own alone, as POSIX's uselocale().
/// Errors:  none. Without memory for the locale, which is made once, the program's own stays.
/// Blocks:  never.
/// Cost:    two stores.
class CNumbers {
 public:
  CNumbers() noexcept : program_(uselocale(c_locale())) {}
  CNumbers(const CNumbers&) = delete;
  CNumbers& operator=(const CNumbers&) = delete;
  ~CNumbers() { uselocale(program_); }

 private:
  static locale_t c_locale() noexcept {
    static const locale_t locale = newlocale(LC_ALL_MASK, "C", locale_t{});
    return locale;
  }

  const locale_t program_;
};

}  // namespace tendon::v0::detail
