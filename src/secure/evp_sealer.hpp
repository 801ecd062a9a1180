// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/result.hpp>

#include "secure/sealer.hpp"

namespace tendon::v0::detail::secure {

/// A Sealer that uses OpenSSL's EVP, which runs on every processor.
///
/// Errors: internal, where libcrypto has no AES-256-GCM.
[[nodiscard]] Result<std::unique_ptr<Sealer>> make_evp_sealer(const AeadKey& key);

}  // namespace tendon::v0::detail::secure
