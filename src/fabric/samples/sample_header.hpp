// SPDX-License-Identifier: Apache-2.0
// The header of every sample, beside its tensors: docs/protocol.md, "Samples".
#pragma once

#include <cstdint>
#include <cstring>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <type_traits>

namespace tendon::v0::detail {

/// The header of a message of purpose `fabric`; the same on every channel. Little endian.
struct SampleHeader {
  std::uint64_t sequence = 0;     ///< of the publisher: 1, 2, 3, ...
  std::uint64_t stamp = 0;        ///< time of publishing [ns of CLOCK_BOOTTIME there]
  std::uint32_t stamp_error = 0;  ///< its greatest error [ns]; 0: exact
  std::uint32_t flags = 0;        ///< none is known: bits of a newer peer are ignored
  std::uint64_t incarnation = 0;  ///< of the publisher's Context, as its hello said
  /// The place of the publisher's last sequence in the head page of this channel, counted from 1;
  /// 0: none.
  std::uint64_t head = 0;

  friend bool operator==(const SampleHeader&, const SampleHeader&) = default;
};
static_assert(sizeof(SampleHeader) == 40 && std::is_trivially_copyable_v<SampleHeader>);

/// Reads a peer's header, from a copy of it. Errors: protocol_violation.
[[nodiscard]] inline Result<SampleHeader> read_sample_header(Bytes bytes) {
  SampleHeader header;
  if (bytes.size() != sizeof header) {
    return Error{ErrorCode::protocol_violation, "subscriber.recv",
                 "a sample has a header of " + std::to_string(bytes.size()) + " bytes, not of " +
                     std::to_string(sizeof header)};
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.sequence != 0) return header;
  return Error{ErrorCode::protocol_violation, "subscriber.recv", "a sample has the sequence 0"};
}

}  // namespace tendon::v0::detail
