// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

#include "secure/record_layer.hpp"
#include "secure/tls_handshake.hpp"

namespace tendon::v0::detail::secure {

/// The secrets for a connection of a link after the link has renewed its session: HKDF-Expand-Label
/// (RFC 8446, section 7.1) of the new session's renewal_key, with the label `client ID` or `server
/// ID` of the sending side. ID is that of the connection's own first session, so that no two
/// connections of a link have the same secrets. `role` is that of this end.
///
/// Errors: internal, where libcrypto has no TLS13-KDF.
[[nodiscard]] Result<RecordSecrets> renewed_secrets(Bytes renewal_key, TlsHandshake::Role role,
                                                    std::string_view connection_id);

}  // namespace tendon::v0::detail::secure
