// SPDX-License-Identifier: Apache-2.0
// The errors of connections that a connect() cannot make.
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/error.hpp>

#include "runtime/handshake_stream.hpp"

namespace tendon::v0::detail {

inline constexpr std::string_view kConnect = "pipe.connect";

/// Puts the dialled address before the text of `error`.
[[nodiscard]] inline Error at_address(std::string_view address, Error error) {
  error.detail = "connecting to " + std::string(address) + ": " + error.detail;
  return error;
}

/// For a listener that has no place for a further connection, and so closes it without a word.
[[nodiscard]] inline Error no_place_at(std::string_view address) {
  return at_address(address,
                    {ErrorCode::server_busy, kConnect,
                     "the listener closed the connection before its first byte: it has no place "
                     "for a further one"});
}

[[nodiscard]] inline Error dial_timed_out(std::string_view address, std::string_view doing) {
  return at_address(
      address, {ErrorCode::timeout, kConnect, "the deadline passed while " + std::string(doing)});
}

/// The deadline passed before the handshake on `stream` was done.
[[nodiscard]] inline Error dial_timed_out(std::string_view address, const HandshakeStream& stream) {
  return dial_timed_out(address, "waiting for the peer's " + std::string(stream.awaits()));
}

}  // namespace tendon::v0::detail
