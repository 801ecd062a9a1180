// SPDX-License-Identifier: Apache-2.0
// The frames of a body that does not travel beside its descriptor: docs/protocol.md, "TCP".
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <tendon/session/limits.hpp>
#include <type_traits>

namespace tendon::v0::detail {

/// The header before the bytes of a frame on a bulk lane.
struct FrameHeader {
  std::uint32_t pipe = 0;
  std::uint32_t length_bytes = 0;
  std::uint64_t sequence = 0;
  std::uint64_t offset = 0;  ///< in the body
  std::uint64_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 32 && std::is_trivially_copyable_v<FrameHeader>);

/// The last bytes of every body are a frame of their own, which begins only when the kernel has all
/// others. Its sender keeps a copy, as it is so small. A message is thus either done or can still
/// be withdrawn, never half of each.
inline constexpr std::uint32_t kTailBytes = 64;

/// The most transfers of one link that may be open at once: announced, but not complete. A receiver
/// with as many, or with as many bytes as its cap, reads no descriptors until one is complete.
inline constexpr std::uint32_t kMaxOpenTransfers = 1024;

/// True if a body travels beside its descriptor. Such a body may not arrive in frames, and no other
/// body may arrive beside its descriptor.
constexpr bool travels_inline(std::uint64_t body_bytes) { return body_bytes <= kMaxInlineBytes; }

/// The cut of one body. Both ends compute it, so that coverage is exact: one bit for each frame.
struct FrameCut {
  std::uint64_t body_bytes = 0;  ///< more than kMaxInlineBytes

  [[nodiscard]] constexpr std::uint64_t tail_offset() const { return body_bytes - kTailBytes; }
  [[nodiscard]] constexpr std::uint64_t count() const {
    return (tail_offset() + kMaxFrameBytes - 1) / kMaxFrameBytes + 1;
  }
  /// Returns the bytes of the frame that begins at `offset`; zero if none does.
  [[nodiscard]] constexpr std::uint32_t length_at(std::uint64_t offset) const {
    if (offset == tail_offset()) return kTailBytes;
    if (offset > tail_offset() || offset % kMaxFrameBytes != 0) return 0;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(kMaxFrameBytes, tail_offset() - offset));
  }
  /// Returns 0 .. count() - 1. Precondition: a frame begins there.
  [[nodiscard]] constexpr std::uint64_t index_of(std::uint64_t offset) const {
    return offset == tail_offset() ? count() - 1 : offset / kMaxFrameBytes;
  }
};

/// Returns the fault of a header, whatever the state of the link; empty if it has none.
[[nodiscard]] inline std::string check_frame(const FrameHeader& header) {
  if (header.length_bytes == 0 || header.length_bytes > kMaxFrameBytes) {
    return "its length of " + std::to_string(header.length_bytes) + " bytes is not in 1.." +
           std::to_string(kMaxFrameBytes);
  }
  if (header.reserved != 0) {
    return "its reserved bytes are " + std::to_string(header.reserved) + ", not zero";
  }
  return {};
}

/// Returns "frame {pipe 3, sequence 9, offset 1048576}", for errors.
[[nodiscard]] inline std::string describe(const FrameHeader& header) {
  return "frame {pipe " + std::to_string(header.pipe) + ", sequence " +
         std::to_string(header.sequence) + ", offset " + std::to_string(header.offset) + "}";
}

}  // namespace tendon::v0::detail
