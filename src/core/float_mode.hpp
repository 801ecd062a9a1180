// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// While it lives, this thread computes by IEEE 754, whatever mode the program has chosen. Results
/// are rounded to nearest, no small number is flushed to zero, and no operation raises a signal.
/// Its end restores the program's mode, with the exceptions that the program had seen.
///
/// A compiler may move arithmetic across the change: put such computations into a function that is
/// not inlined. On other processors than x86-64 and AArch64 it does nothing.
///
/// Owns:    nothing.
/// Threads: its own alone.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    two looks at the control register, and up to two loads of it, some 10 ns.
class DefaultFloatMode {
 public:
#if defined(__x86_64__)
  DefaultFloatMode() noexcept : program_(__builtin_ia32_stmxcsr()) {
    // Nearly all programs have it already, and a load takes longer than a look.
    constexpr std::uint32_t kDefault = 0x1F80;
    constexpr std::uint32_t kSeenExceptions = 0x3F;
    if ((program_ & ~kSeenExceptions) != kDefault) __builtin_ia32_ldmxcsr(kDefault);
  }
  ~DefaultFloatMode() {
    if (__builtin_ia32_stmxcsr() != program_) __builtin_ia32_ldmxcsr(program_);
  }
#elif defined(__aarch64__)
  DefaultFloatMode() noexcept {
    asm volatile("mrs %0, fpcr" : "=r"(program_));
    asm volatile("mrs %0, fpsr" : "=r"(seen_));
    asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{0}));
  }
  ~DefaultFloatMode() {
    asm volatile("msr fpsr, %0" : : "r"(seen_));
    asm volatile("msr fpcr, %0" : : "r"(program_));
  }
#else
  DefaultFloatMode() noexcept {}
  ~DefaultFloatMode() {}
#endif
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  std::uint32_t program_;
#elif defined(__aarch64__)
  std::uint64_t program_;
  std::uint64_t seen_;
#endif
};

}  // namespace tendon::v0::detail
