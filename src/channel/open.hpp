// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "channel/window.hpp"
#include "runtime/opening.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// The opening of a channel by a ticket. `window` limits the sender's untaken messages, for a peer
/// that knows Feature::window_in_open. The other direction has the constants.
[[nodiscard]] inline Opening opening_of(Bytes ticket, const std::optional<Window>& window) {
  return {.header = ticket,
          .window_messages = window ? window->messages : 0,
          .window_bytes = window ? window->bytes : 0};
}

/// Reads from an `open` the window that its receiver may use. Errors: protocol_violation.
[[nodiscard]] inline Result<Window> window_of(const Descriptor& open) {
  if (open.tag == 0 && open.sequence == 0) return Window{};
  if (open.tag == 0 || open.sequence == 0) {
    return Error{ErrorCode::protocol_violation, "channel.open",
                 "pipe " + std::to_string(open.pipe) + " was opened with a window of " +
                     std::to_string(open.tag) + " messages and " + std::to_string(open.sequence) +
                     " bytes"};
  }
  return Window::said(open.tag, open.sequence);
}

}  // namespace tendon::v0::detail
