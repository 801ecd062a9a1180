// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/core/words.hpp>
#include <tendon/tensor/layout.hpp>
#include <type_traits>

namespace tendon::v0::detail {

static_assert(std::endian::native == std::endian::little && sizeof(void*) == 8,
              "the wire is little endian and 64-bit; other machines are not supported");

/// What a message is. Numbers are wire contract: append only.
enum class MessageKind : std::uint8_t {
  data = 1,     ///< a TensorDict of a schema announced before on this pipe
  bytes = 2,    ///< raw bytes with a small header
  schema = 3,   ///< the canonical encoding of a schema; `schema` is its number from now on
  segment = 4,  ///< shm, on the socket with a descriptor: slots of this segment may follow
  credit = 5,   ///< `sequence` messages and `payload_bytes` bytes of this pipe were taken, in total
  ack = 6,      ///< every byte of the messages up to `sequence` has arrived
  end = 7,      ///< orderly end of this direction of the pipe
  abort = 8,    ///< message `sequence` will not be completed: drop it
  cancel = 9,   ///< both directions end now, unread data is dropped
  ping =
      10,  ///< pipe 0: a sign of life; else: answer with ack when all up to `sequence` has arrived
  error = 11,    ///< the peer ended the pipe with an error: body = text, `tag` = code
  open = 12,     ///< a new pipe; `schema` = its Purpose; header = the ticket, or what is said of it
  goodbye = 13,  ///< pipe 0: the peer's Context ends in order; `tag` 1: only the link, by agreement
  retire = 14,   ///< pipe 0: the link is not used on this side (Feature::retire)
  /// pipe 0 (Feature::clock): `tag` 0 asks, `sequence` is the time here; `tag` 1 returns it, with
  /// the times there of its arrival, `generation`, and of this message, `offset` [ns]
  clock = 15,
  device = 16,  ///< pipe 0 (Feature::devices): a word about a GPU, see device_word.hpp
  secure = 17,  ///< pipe 0 (over TLS): a word of a renewal, see link_renewal.hpp; `tag` is which
  head = 18,    ///< (Feature::heads) the publisher of this channel has published up to `sequence`
};
TENDON_WORDS(MessageKind, data, bytes, schema, segment, credit, ack, end, abort, cancel, ping,
             error, open, goodbye, retire, clock, device, secure, head);

/// What a pipe is opened for. Numbers are wire contract: append only.
enum class Purpose : std::uint32_t {
  ticket = 0,     ///< a pipe of the listener that gave the ticket in the header
  group = 1,      ///< members of a group
  fabric = 2,     ///< samples of a topic
  call = 3,       ///< calls of a responder
  discovery = 4,  ///< announcements, without a discovery service
};

/// Do messages of this kind have a body? It may be empty.
[[nodiscard]] bool has_body(MessageKind kind);

/// Where those leaves of a message are that lie on a GPU: in a slot that its sender owns.
struct DevicePart {
  std::uint32_t device = 0;   ///< its number in the sender's offers
  std::uint32_t segment = 0;  ///< as the sender announced it
  std::uint32_t slot = 0;
  std::uint32_t zero = 0;
  std::uint64_t generation = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t word = 0;  ///< the number of the message among those of the link with such parts
};
static_assert(sizeof(DevicePart) == 40 && std::is_trivially_copyable_v<DevicePart>);

/// One message, on every transport. Whole body = payload, then values, then header, then device
/// parts, without gaps. The values of a schema are one byte a leaf: see Placement.
struct Descriptor {
  MessageKind kind = MessageKind::data;
  std::uint8_t flags = 0;
  std::uint16_t header_bytes = 0;
  std::uint32_t pipe = 0;
  std::uint64_t sequence = 0;
  std::uint32_t schema = 0;
  std::uint32_t tag = 0;
  std::uint64_t payload_bytes = 0;
  std::uint32_t values_bytes = 0;
  Layout layout = {};             ///< data: how the payload is packed; else zero
  std::uint8_t device_parts = 0;  ///< data: how many stand behind the header, at most 1
  std::array<std::uint8_t, 2> reserved{};
  // Where the body is. shm: {segment, slot, generation, offset}; inline in shm: {inline_bytes, 0,
  // 0, offset in the arena}; tcp: {inline_bytes, 0, 0, 0}, the rest comes as bulk frames.
  std::uint32_t segment_or_inline_bytes = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  std::uint64_t offset = 0;

  /// The body lies inline (behind the descriptor, or in the arena), not in a slot or in bulk
  /// frames.
  static constexpr std::uint8_t kInline = 1;
  [[nodiscard]] bool is_inline() const { return (flags & kInline) != 0; }
  /// Never overflows: payload_bytes is checked against the link's cap first.
  [[nodiscard]] std::uint64_t body_bytes() const {
    return payload_bytes + values_bytes + header_bytes + device_parts * sizeof(DevicePart);
  }
};
static_assert(sizeof(Descriptor) == 64 && std::is_trivially_copyable_v<Descriptor>);

/// The `error` that ends a pipe, or refuses it. `text` is its body.
[[nodiscard]] inline Descriptor error_descriptor(std::uint32_t pipe, ErrorCode code,
                                                 std::string_view text) {
  Descriptor error;
  error.kind = MessageKind::error;
  error.pipe = pipe;
  error.tag = static_cast<std::uint32_t>(code);
  error.payload_bytes = text.size();
  return error;
}

/// Checks every field that does not depend on the state of a link: kind, flags, reserved bits,
/// lengths against their caps. Returns what is wrong, or an empty text.
[[nodiscard]] std::string_view check_descriptor(const Descriptor& descriptor,
                                                std::uint64_t cap_bytes);

}  // namespace tendon::v0::detail
