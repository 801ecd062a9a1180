// SPDX-License-Identifier: Apache-2.0
// How the bytes of an operation are cut: into a share for each member, and into rounds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/schema_builder.hpp"

namespace tendon::v0::detail {

/// Rounds up to the next place where a tensor may begin: a multiple of 64.
[[nodiscard]] constexpr std::uint64_t aligned(std::uint64_t size_bytes) {
  return size_bytes + padding_bytes(size_bytes);
}

/// A member's bytes of a buffer; empty if the members before it have all.
struct Share {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
/// The bytes of the largest share.
[[nodiscard]] constexpr std::uint64_t largest_share(std::uint32_t members,
                                                    std::uint64_t size_bytes) {
  return aligned(size_bytes / members + (size_bytes % members != 0 ? 1 : 0));
}
/// The share of a member. Shares are as equal as cuts at multiples of 64 allow; the last one is the
/// rest.
[[nodiscard]] constexpr Share share_of(std::uint32_t member, std::uint32_t members,
                                       std::uint64_t size_bytes) {
  const std::uint64_t each = largest_share(members, size_bytes);
  return {std::min(size_bytes, member * each), std::min(size_bytes, (member + 1) * each)};
}

/// Rounds that move so many bytes; an operation has one at least.
[[nodiscard]] constexpr std::uint64_t round_count(std::uint64_t size_bytes,
                                                  std::uint64_t piece_bytes) {
  return std::max<std::uint64_t>(1, (size_bytes + piece_bytes - 1) / piece_bytes);
}

}  // namespace tendon::v0::detail
