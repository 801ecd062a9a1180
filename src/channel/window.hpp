// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <tendon/session/limits.hpp>

namespace tendon::v0::detail {

/// The limit of messages in one direction of a channel that are shown and not taken. The receiver
/// reports taken messages by `credit`, a step at a time. So less than a step may count as open at
/// the sender although all of it was taken: below that any message may be sent (docs/protocol.md,
/// "Credits").
struct Window {
  std::uint32_t messages = kPipeWindowMessages;
  std::uint64_t bytes = kPipeWindowBytes;
  std::uint32_t step_messages = kPipeCreditMessages;
  std::uint64_t step_bytes = kPipeCreditBytes;

  static constexpr std::uint64_t kUnbounded = ~std::uint64_t{0};

  /// The window of an `open`, with no zero: the step is half of it.
  [[nodiscard]] static constexpr Window said(std::uint32_t messages, std::uint64_t bytes) {
    return {messages, bytes, (messages + 1) / 2, (bytes + 1) / 2};
  }
  /// The same where the slots of the link limit the bytes.
  [[nodiscard]] constexpr Window without_bytes() const {
    return {messages, kUnbounded, step_messages, kUnbounded};
  }

  /// True if a message of `size_bytes` may join `open_bytes` that were not taken. Two messages too
  /// large for the window may be open, within the cap of the link: one is on its way while the
  /// other is taken.
  [[nodiscard]] constexpr bool fits(std::uint64_t open_bytes, std::uint64_t size_bytes,
                                    std::uint64_t cap_bytes) const {
    const std::uint64_t two_bytes = std::min(2 * size_bytes, cap_bytes);
    return open_bytes < step_bytes || open_bytes + size_bytes <= std::max(bytes, two_bytes);
  }

  friend bool operator==(const Window&, const Window&) = default;
};

}  // namespace tendon::v0::detail
