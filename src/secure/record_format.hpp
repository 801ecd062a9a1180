// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tendon/core/bytes.hpp>

#include "secure/sealer.hpp"

namespace tendon::v0::detail::secure {

// A protected record of TLS 1.3 (RFC 8446, section 5.2), as all are after a handshake:
//
//   23            the outer type, always that of application data
//   3 3           the version, always that of TLS 1.2
//   2 bytes       the number of the following bytes, most significant first
//   sealed:       content, its type, any number of zeros
//   16 bytes      tag, which also covers the five bytes of the header
inline constexpr std::size_t kRecordHeaderBytes = 5;
inline constexpr std::size_t kMaxContentBytes = std::size_t{1} << 14;
inline constexpr std::size_t kTypeBytes = 1;
/// The bytes of a record besides its content, without zeros.
inline constexpr std::size_t kRecordOverheadBytes = kRecordHeaderBytes + kTypeBytes + kTagBytes;
inline constexpr std::size_t kMaxRecordBytes = kMaxContentBytes + kRecordOverheadBytes;

/// The number of bytes after the header of the record at the start of `received`. Nothing: the
/// header has not fully arrived.
[[nodiscard]] inline std::optional<std::size_t> sealed_bytes_in(Bytes received) {
  if (received.size() < kRecordHeaderBytes) return std::nullopt;
  return std::to_integer<std::size_t>(received[3]) << 8 | std::to_integer<std::size_t>(received[4]);
}

enum class ContentType : std::uint8_t {
  none = 0,  ///< of a record that has only zeros
  alert = 21,
  handshake = 22,
  application_data = 23,
};

/// The alerts that a RecordLayer sends or recognizes (RFC 8446, section 6).
enum class Alert : std::uint8_t {
  close_notify = 0,
  unexpected_message = 10,
  bad_record_mac = 20,
  record_overflow = 22,
  bad_certificate = 42,  ///< only received
  illegal_parameter = 47,
  decode_error = 50,
  internal_error = 80,
  certificate_required = 116,  ///< only received
};

/// A KeyUpdate (RFC 8446, section 4.6.3): this type, three bytes of length, and whether the peer
/// must update as well.
inline constexpr std::byte kKeyUpdateType{24};
inline constexpr std::size_t kKeyUpdateBytes = 5;

}  // namespace tendon::v0::detail::secure
