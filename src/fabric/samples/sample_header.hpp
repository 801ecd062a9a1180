// SPDX-License-Identifier: Apache-2.0
// What every sample says beside its tensors: docs/protocol.md, "Samples".
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
  std::uint64_t stamp = 0;        ///< when it was published [ns of CLOCK_BOOTTIME there]
  std::uint32_t stamp_error = 0;  ///< by how much that may be wrong [ns]; 0: by nothing
  std::uint32_t flags = 0;        ///< none is known: what a newer peer sets is passed over
  std::uint64_t incarnation = 0;  ///< of the publisher's Context, as its hello said
  /// Where the publisher's last sequence stands in the head page of this channel, counted from 1;
  /// 0: nowhere.
  std::uint64_t head = 0;

  friend bool operator==(const SampleHeader&, const SampleHeader&) = default;
};
static_assert(sizeof(SampleHeader) == 40 && std::is_trivially_copyable_v<SampleHeader>);

/// Reads what a peer wrote, from a copy of it. Errors: protocol_violation.
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
