// SPDX-License-Identifier: Apache-2.0
// The sizes of slots and segments in memory of GPUs. The driver maps in units of 2 MiB, each
// mapping costs about 0.2 ms in each process, and a slot is at least as large as its message.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail::cuda {

inline constexpr std::uint64_t kLeastSlotBytes = 4096;
/// The unit of segments. Slots of this size or more have a segment each.
inline constexpr std::uint64_t kLargeSlotBytes = std::uint64_t{2} << 20;
/// The largest segment of smaller slots.
inline constexpr std::uint64_t kSharedSegmentBytes = std::uint64_t{32} << 20;

/// The slot for so many bytes: a power of two below kLargeSlotBytes; above, a multiple of it in
/// steps of an eighth of a power of two, so that at most an eighth is wasted from 16 MiB on.
[[nodiscard]] constexpr std::uint64_t slot_bytes_for(std::uint64_t size_bytes) {
  if (size_bytes <= kLeastSlotBytes) return kLeastSlotBytes;
  if (size_bytes <= kLargeSlotBytes) return std::bit_ceil(size_bytes);
  const std::uint64_t step = std::max(kLargeSlotBytes, std::bit_floor(size_bytes) / 8);
  return (size_bytes + step - 1) / step * step;
}

/// The segment size for slots of this size, in a pool of so many bytes: nine sizes share one.
[[nodiscard]] constexpr std::uint64_t segment_bytes_for(std::uint64_t slot_bytes,
                                                        std::uint64_t cap_bytes) {
  if (slot_bytes >= kLargeSlotBytes) return slot_bytes;
  return std::clamp(std::bit_floor(cap_bytes / 16), kLargeSlotBytes, kSharedSegmentBytes);
}

}  // namespace tendon::v0::detail::cuda
