// SPDX-License-Identifier: Apache-2.0
// How much of what a link carries may lie untaken at its receiver, over all pipes:
// docs/protocol.md, "Limits of a receiver". Both ends compute it from the receiver's cap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

/// A receiver says what was taken after this many bytes, so that less than this may be open for the
/// sender although everything was taken.
[[nodiscard]] constexpr std::uint64_t link_credit_bytes(std::uint64_t cap_bytes) {
  return std::clamp<std::uint64_t>(cap_bytes / 8, 1, kPipeCreditBytes);
}

/// May a body that travels in frames join `open_bytes`, which the receiver has not said it took?
/// The sender asks before it announces the body.
[[nodiscard]] constexpr bool fits_link_window(std::uint64_t open_bytes, std::uint64_t body_bytes,
                                              std::uint64_t cap_bytes) {
  return open_bytes < link_credit_bytes(cap_bytes) ||
         body_bytes <= cap_bytes - std::min(open_bytes, cap_bytes);
}

/// What a sender that asks never exceeds: the receiver refuses more.
[[nodiscard]] constexpr std::uint64_t link_window_bytes(std::uint64_t cap_bytes) {
  return cap_bytes + link_credit_bytes(cap_bytes);
}

}  // namespace tendon::v0::detail
