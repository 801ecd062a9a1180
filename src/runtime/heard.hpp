// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tendon::v0::detail {

/// The part of a listener's answer that has arrived in one try to connect.
enum class Heard : std::uint8_t {
  nothing,
  handshake,  ///< a part of its TLS handshake
  word,       ///< a part of a frame of Tendon
};

}  // namespace tendon::v0::detail
