// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail::secure {

enum class ClientHello : std::uint8_t { incomplete, whole };

/// Checks whether these bytes begin a TLS connection: one record (RFC 8446, section 5.1) with one
/// ClientHello (section 4.1.2), and nothing after it. It reads only lengths and types, so that
/// OpenSSL does no work for a peer that only sends noise.
///
/// Errors: protocol_violation, as soon as a byte shows it.
[[nodiscard]] Result<ClientHello> look_at_client_hello(Bytes received);

}  // namespace tendon::v0::detail::secure
