// SPDX-License-Identifier: Apache-2.0
// Error codes from a peer. A peer may send any number; only some codes are allowed.
#pragma once

#include <cstdint>
#include <optional>
#include <tendon/core/error.hpp>

namespace tendon::v0::detail {

/// The place in which a peer names an error code.
enum class PeerSays : std::uint8_t {
  refusal = 1,  ///< in the `reject` of a handshake
  pipe = 2,     ///< in the `error` that ends a pipe
  epoch = 4,    ///< in the `abort` that ends an epoch of a group
};

/// The code with this number, if a peer may say it there (a column of error_codes.def).
[[nodiscard]] std::optional<ErrorCode> code_from_peer(std::uint32_t number, PeerSays where);

}  // namespace tendon::v0::detail
