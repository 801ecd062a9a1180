// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace tendon::test {

/// Locks shared memory. False: the process may lock none, or a sanitizer turns mlock() off. The
/// check relies on Linux, which unmaps no locked page.
inline bool lock_memory(void* memory, std::size_t size_bytes) {
  return mlock(memory, size_bytes) == 0 && madvise(memory, size_bytes, MADV_DONTNEED) != 0;
}

}  // namespace tendon::test
