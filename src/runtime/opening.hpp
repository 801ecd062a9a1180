// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/bytes.hpp>

#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// The contents of an `open`: a purpose with its header, or a ticket. docs/protocol.md, "Opening".
struct Opening {
  Purpose purpose = Purpose::ticket;
  Bytes header{};
  /// The window of the opener's own receiving half, with Feature::window_in_open; both zero: not
  /// sent.
  std::uint32_t window_messages = 0;
  std::uint64_t window_bytes = 0;

  /// The message itself, for a pipe of this number.
  [[nodiscard]] Descriptor descriptor(std::uint32_t pipe) const {
    Descriptor open;
    open.kind = MessageKind::open;
    open.pipe = pipe;
    open.schema = static_cast<std::uint32_t>(purpose);
    open.tag = window_messages;
    open.sequence = window_bytes;
    open.header_bytes = static_cast<std::uint16_t>(header.size());
    return open;
  }
};

}  // namespace tendon::v0::detail
