// SPDX-License-Identifier: Apache-2.0
// The limits of messages between members that are under way. Only their cost bounds their number.
// Steps of collectives have no window of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tendon/session/limits.hpp>

#include "channel/window.hpp"

namespace tendon::v0::detail {

/// The window towards a receiver with this cap.
[[nodiscard]] inline Window messages_window(std::uint64_t receiver_cap_bytes) {
  const std::uint64_t bytes = std::min(kPipeWindowBytes, receiver_cap_bytes);
  return {.messages = std::numeric_limits<std::uint32_t>::max(),
          .bytes = bytes,
          .step_messages = std::numeric_limits<std::uint32_t>::max(),
          .step_bytes = bytes / 8};
}
/// A message of any size may leave while this much is open.
inline constexpr std::uint64_t kAnyBytes = 1;
/// A message costs the receiver more than its bytes.
inline constexpr std::uint64_t kMessageCostBytes = 1024;
[[nodiscard]] constexpr std::uint64_t message_cost_bytes(std::uint64_t message_bytes) {
  return message_bytes + kMessageCostBytes;
}

}  // namespace tendon::v0::detail
