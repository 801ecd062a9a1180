// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Leaves the core to its sibling for a moment, between two looks of a spinning thread.
inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tendon::v0::detail
