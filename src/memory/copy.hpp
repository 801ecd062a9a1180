// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/words.hpp>

namespace tendon::v0::detail {

/// How a copy treats the cache.
enum class CopyHint : std::uint8_t {
  cached,      ///< memcpy: the copy is read from the cache soon, or nothing else is faster
  streaming,   ///< stores that write around the cache
  prefetched,  ///< the same, with the source fetched ahead: faster on some processors, on others
               ///< half as fast
};
inline constexpr std::array kCopyHints = {CopyHint::cached, CopyHint::streaming,
                                          CopyHint::prefetched};
TENDON_WORDS(CopyHint, cached, streaming, prefetched);

/// Copies `source` to the front of `destination`, which must be at least as long; they must not
/// overlap. Less than kSmallestStreamed bytes are always cached.
void copy_bytes(MutableBytes destination, Bytes source, CopyHint hint);

/// Below it the ends of a copy, which begin or end within a line, and the fence after it cost
/// measurable time.
inline constexpr std::uint64_t kSmallestStreamed = 4096;

}  // namespace tendon::v0::detail
