// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/bytes.hpp>

namespace tendon::inline v0::detail {

/// How a copy treats the cache.
enum class CopyHint : std::uint8_t {
  cached,     ///< the copy is small enough to be read from cache soon
  streaming,  ///< the copy is larger than the caches: write around them
};

/// From this size of a whole message on, writing around the cache is faster than glibc's memcpy,
/// which still reads every destination line first (measured: 100 MB 16.4 against 8.4 GB/s, 4 MiB 21
/// against 28).
inline constexpr std::uint64_t kStreamingBytes = 8ull << 20;
[[nodiscard]] inline CopyHint copy_hint(std::uint64_t message_bytes) {
  return message_bytes >= kStreamingBytes ? CopyHint::streaming : CopyHint::cached;
}

/// Copies `source` to the front of `destination`, which must be at least as long; they must not
/// overlap.
void copy_bytes(MutableBytes destination, Bytes source, CopyHint hint);

}  // namespace tendon::inline v0::detail
