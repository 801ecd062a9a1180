// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

/// May a message of `size_bytes` join `open_bytes` in the window? The sender counts as open what
/// the receiver has not said it took, so a large message must be let in while that may be nothing.
/// Of messages too large for the window two may be open, within the cap of the link: one is on its
/// way while the other is taken.
[[nodiscard]] constexpr bool fits_window(std::uint64_t open_bytes, std::uint64_t size_bytes,
                                         std::uint64_t cap_bytes) {
  const std::uint64_t two_bytes = std::min(2 * size_bytes, cap_bytes);
  return open_bytes < kPipeCreditBytes ||
         open_bytes + size_bytes <= std::max(kPipeWindowBytes, two_bytes);
}

}  // namespace tendon::v0::detail
