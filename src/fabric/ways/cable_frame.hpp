// SPDX-License-Identifier: Apache-2.0
// A frame of a cable, which carries the bytes of a link through the routers of Zenoh:
// docs/protocol.md, "Routed links".
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/limits.hpp>
#include <type_traits>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

/// The kind of a frame. Numbers are wire contract: append only.
enum class CableFrameKind : std::uint8_t {
  data = 1,  ///< bytes of the stream
  word = 2,  ///< no bytes: a sign of life that shows the limit of its sender
  end = 3,   ///< this direction has no further bytes
  cut = 4,   ///< the last frame: the cable no longer exists
};

/// The header of a frame, little endian. Its payload follows, then a CableTag over both.
struct CableFrameHeader {
  Nonce128 connection{};       ///< names the cable
  std::uint64_t sequence = 0;  ///< of the frame, in its direction: 0, 1, ...
  std::uint64_t limit = 0;     ///< the total bytes of payload that may return
  CableFrameKind kind = CableFrameKind::word;
  std::array<std::uint8_t, 7> reserved{};

  friend bool operator==(const CableFrameHeader&, const CableFrameHeader&) = default;
};
static_assert(sizeof(CableFrameHeader) == 40 && std::is_trivially_copyable_v<CableFrameHeader>);

using CableTag = std::array<std::byte, 16>;

inline constexpr std::size_t kMinCableFrameBytes = sizeof(CableFrameHeader) + sizeof(CableTag);
inline constexpr std::size_t kMaxCableFrameBytes = kMinCableFrameBytes + kMaxCablePayloadBytes;

/// A parsed frame, which points into the received bytes.
struct CableFrame {
  CableFrameHeader header;
  Bytes payload;
  Bytes sealed;  ///< the bytes that the tag covers
  CableTag tag{};
};

/// Reads a frame, which anybody may have put. Errors: protocol_violation.
[[nodiscard]] inline Result<CableFrame> read_cable_frame(Bytes bytes) {
  const auto refused = [](const std::string& why) {
    return Error{ErrorCode::protocol_violation, "fabric.cable", "a frame of a cable " + why};
  };
  if (bytes.size() < kMinCableFrameBytes || bytes.size() > kMaxCableFrameBytes) {
    return refused("has " + std::to_string(bytes.size()) + " bytes; legal: " +
                   std::to_string(kMinCableFrameBytes) + "-" + std::to_string(kMaxCableFrameBytes));
  }
  CableFrame frame;
  std::memcpy(&frame.header, bytes.data(), sizeof frame.header);
  frame.sealed = bytes.first(bytes.size() - sizeof frame.tag);
  frame.payload = frame.sealed.subspan(sizeof frame.header);
  std::memcpy(frame.tag.data(), frame.sealed.data() + frame.sealed.size(), sizeof frame.tag);
  if (std::ranges::any_of(frame.header.reserved, [](std::uint8_t byte) { return byte != 0; }))
    return refused("has reserved bytes that are not zero");
  switch (frame.header.kind) {
    case CableFrameKind::data:
      if (frame.payload.empty()) return refused("of data has none");
      return frame;
    case CableFrameKind::word:
    case CableFrameKind::end:
    case CableFrameKind::cut:
      if (!frame.payload.empty()) return refused("that is none of data has some");
      return frame;
  }
  return refused("is of kind " + std::to_string(static_cast<unsigned>(frame.header.kind)) +
                 "; legal: 1-4");
}

}  // namespace tendon::v0::detail
