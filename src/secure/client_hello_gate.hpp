// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail::secure {

enum class ClientHello : std::uint8_t { incomplete, whole };

/// Are these bytes the beginning of a connection by TLS: one record (RFC 8446, section 5.1) with
/// one ClientHello (section 4.1.2), and nothing behind it? It looks at no more than their lengths
/// and types, so that OpenSSL works for nobody who only makes noise.
///
/// Errors: protocol_violation, as soon as a byte shows it.
[[nodiscard]] Result<ClientHello> look_at_client_hello(Bytes received);

}  // namespace tendon::v0::detail::secure
