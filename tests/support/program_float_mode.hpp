// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fenv.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tendon::test {

/// A mode of arithmetic that a program chose for this thread, which ends with the object.
class ProgramFloatMode {
 public:
  enum class Kind {
    flush_to_zero,  ///< small numbers become zero, as with -ffast-math
    upward,         ///< results are rounded up
    downward,
    raising,  ///< invalid, too large or too small results raise SIGFPE
  };
  explicit ProgramFloatMode(Kind kind) {
    fegetenv(&before_);
    switch (kind) {
      case Kind::flush_to_zero:
        flush_to_zero();
        return;
      case Kind::upward:
        fesetround(FE_UPWARD);
        return;
      case Kind::downward:
        fesetround(FE_DOWNWARD);
        return;
      case Kind::raising:
        feclearexcept(FE_ALL_EXCEPT);
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW);
        return;
    }
  }
  ProgramFloatMode(const ProgramFloatMode&) = delete;
  ProgramFloatMode& operator=(const ProgramFloatMode&) = delete;
  ~ProgramFloatMode() { fesetenv(&before_); }

 private:
  static void flush_to_zero() {
#if defined(__x86_64__)
    constexpr unsigned kFlushToZero = 0x8000;
    constexpr unsigned kDenormalsAreZero = 0x0040;
    _mm_setcsr(_mm_getcsr() | kFlushToZero | kDenormalsAreZero);
#elif defined(__aarch64__)
    unsigned long word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    asm volatile("msr fpcr, %0" : : "r"(word | 1UL << 24));
#endif
  }

  fenv_t before_;
};

}  // namespace tendon::test
