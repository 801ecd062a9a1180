// SPDX-License-Identifier: Apache-2.0
// The limit of the bytes that a link carries and its receiver has not taken, over all pipes:
// docs/protocol.md, "Limits of a receiver". Both ends compute it from the receiver's cap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

/// The bytes after which a receiver reports what was taken. The sender may thus count up to this
/// many bytes as open although everything was taken.
[[nodiscard]] constexpr std::uint64_t link_credit_bytes(std::uint64_t cap_bytes) {
  return std::clamp<std::uint64_t>(cap_bytes / 8, 1, kPipeCreditBytes);
}

/// True if a body that travels in frames may join `open_bytes`, which the receiver has not reported
/// as taken. The sender asks before it announces the body.
[[nodiscard]] constexpr bool fits_link_window(std::uint64_t open_bytes, std::uint64_t body_bytes,
                                              std::uint64_t cap_bytes) {
  return open_bytes < link_credit_bytes(cap_bytes) ||
         body_bytes <= cap_bytes - std::min(open_bytes, cap_bytes);
}

/// The most that a sender that asks can have open: the receiver refuses more.
[[nodiscard]] constexpr std::uint64_t link_window_bytes(std::uint64_t cap_bytes) {
  return cap_bytes + link_credit_bytes(cap_bytes);
}

}  // namespace tendon::v0::detail
