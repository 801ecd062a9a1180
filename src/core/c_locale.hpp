// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <locale.h>

#include <atomic>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// While it lives, the C library serves this thread in the locale "C": with a decimal point, and in
/// English. Other threads keep the program's own locale.
///
/// Owns:    nothing; it restores the thread's locale.
/// Threads: its own alone, as POSIX's uselocale().
/// Errors:  none. Without memory for the locale, which is made once, the program's own stays.
/// Blocks:  never.
/// Cost:    two stores.
class CLocale {
 public:
  CLocale() noexcept : program_(uselocale(c_locale())) {}
  CLocale(const CLocale&) = delete;
  CLocale& operator=(const CLocale&) = delete;
  ~CLocale() { uselocale(program_); }

 private:
  // A forked child keeps its parent's: it has no lock.
  static locale_t c_locale() noexcept {
    locale_t known = made_.load(std::memory_order_acquire);
    if (known != locale_t{}) return known;
    const locale_t mine = newlocale(LC_ALL_MASK, "C", locale_t{});
    if (mine == locale_t{}) return mine;
    if (made_.compare_exchange_strong(known, mine, std::memory_order_acq_rel)) return mine;
    freelocale(mine);
    return known;
  }

  static inline constinit std::atomic<locale_t> made_{};

  const locale_t program_;
};

}  // namespace tendon::v0::detail
