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

/// What a frame is. Numbers are wire contract: append only.
enum class CableFrameKind : std::uint8_t {
  data = 1,  ///< bytes of the stream
  word = 2,  ///< none: a sign of life that shows how far its sender has come
  end = 3,   ///< there are no further bytes of this direction
  cut = 4,   ///< the last frame: the cable is no more
};

/// Little endian. A frame is this, its payload, and a CableTag over both.
struct CableFrameHeader {
  Nonce128 connection{};       ///< which cable
  std::uint64_t sequence = 0;  ///< of the frame, in its direction: 0, 1, ...
  std::uint64_t limit = 0;     ///< so many bytes of payload may come back, since the beginning
  CableFrameKind kind = CableFrameKind::word;
  std::array<std::uint8_t, 7> reserved{};

  friend bool operator==(const CableFrameHeader&, const CableFrameHeader&) = default;
};
static_assert(sizeof(CableFrameHeader) == 40 && std::is_trivially_copyable_v<CableFrameHeader>);

using CableTag = std::array<std::byte, 16>;

inline constexpr std::size_t kMinCableFrameBytes = sizeof(CableFrameHeader) + sizeof(CableTag);
inline constexpr std::size_t kMaxCableFrameBytes = kMinCableFrameBytes + kMaxCablePayloadBytes;

/// A frame as it lies in what came.
struct CableFrame {
  CableFrameHeader header;
  Bytes payload;
  Bytes sealed;  ///< what the tag is over
  CableTag tag{};
};

/// Reads what anybody may have put. Errors: protocol_violation.
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
