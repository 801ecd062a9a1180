// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail::secure {

/// Fills `derived` by HKDF-Expand-Label of TLS 1.3 with an empty context (RFC 8446, section 7.1).
/// `digest` is OpenSSL's name of the digest: "SHA2-384" in our suite.
///
/// Errors: internal, where libcrypto has no TLS13-KDF.
[[nodiscard]] Result<void> expand_label(std::string_view digest, Bytes secret,
                                        std::string_view label, MutableBytes derived);

}  // namespace tendon::v0::detail::secure
