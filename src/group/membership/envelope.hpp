// SPDX-License-Identifier: Apache-2.0
// The messages between members of a group, on every link: docs/protocol.md, "Groups".
#pragma once

#include <cstdint>
#include <optional>
#include <tendon/core/bytes.hpp>
#include <type_traits>

#include "group/membership/group_place.hpp"
#include "group/membership/mesh_place.hpp"

namespace tendon::v0::detail {

/// The kind of a message between members. Numbers are wire contract: append only.
enum class EnvelopeKind : std::uint8_t {
  join = 1,        ///< to rank 0: `from` of `count`, listening at the address in the body
  neighbour = 2,   ///< from rank 0: member `extra` listens at the address in the body
  hello = 3,       ///< the first word on a channel: this is `from`
  refuse = 4,      ///< you may not join: the body says why
  ready = 5,       ///< `from` enters `epoch` of `group`, having completed `sequence` before it
  abort = 6,       ///< `epoch` ends before collective `sequence`; the body says why, `extra` is to
                   ///< blame, `tag` an ErrorCode
  agreement = 7,   ///< an AgreementMessage in the body
  collective = 8,  ///< a step of collective `sequence`; the fingerprint is {op, dtype, reduce, ...}
  message = 9,     ///< a message between members: `tag`, `count` bytes
  left = 10,       ///< `from` has left `group`, in order
};

/// The place of the sender: in its group, or in the mesh for join, neighbour, hello and refuse.
struct Sender {
  std::uint32_t value = 0;
  constexpr Sender() = default;
  constexpr explicit(false) Sender(GroupPlace place) : value(place.value) {}
  constexpr explicit(false) Sender(MeshPlace place) : value(place.value) {}
  [[nodiscard]] constexpr GroupPlace in_group() const { return {value}; }
  [[nodiscard]] constexpr MeshPlace in_mesh() const { return {value}; }
};

/// The header of each such message. Little endian, no padding.
struct Envelope {
  EnvelopeKind kind = EnvelopeKind::hello;
  std::uint8_t op = 0;
  std::uint8_t dtype = 0;
  std::uint8_t reduce = 0;
  Sender from = {};
  std::uint64_t group = 0;
  std::uint64_t epoch = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint32_t extra = 0;
  std::uint32_t tag = 0;
};
static_assert(sizeof(Envelope) == 48 && std::is_trivially_copyable_v<Envelope>);

/// The number of a collective message's operation, below its history.
[[nodiscard]] constexpr std::uint32_t operation_number(const Envelope& step) {
  return static_cast<std::uint32_t>(step.sequence);
}
/// nullopt for a header of another length or an unknown kind.
[[nodiscard]] std::optional<Envelope> read_envelope(Bytes header);
[[nodiscard]] inline Bytes bytes_of(const Envelope& envelope) {
  return std::as_bytes(std::span(&envelope, 1));
}
/// True for messages that are sent at once, past data that waits its turn.
[[nodiscard]] constexpr bool is_control(EnvelopeKind kind) {
  return kind != EnvelopeKind::collective && kind != EnvelopeKind::message;
}

}  // namespace tendon::v0::detail
