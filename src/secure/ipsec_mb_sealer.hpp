// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>

#include "secure/sealer.hpp"

namespace tendon::v0::detail::secure {

/// A Sealer that uses libipsec-mb, which uses the vector instructions of the processor.
///
/// Errors: not_supported, where this build has no libipsec-mb, the one that was loaded is of
///         another version, or this processor has no AES-NI.
[[nodiscard]] Result<std::unique_ptr<Sealer>> make_ipsec_mb_sealer(const AeadKey& key);
/// The version of the loaded libipsec-mb; empty where this build has none.
[[nodiscard]] std::string_view ipsec_mb_version();

}  // namespace tendon::v0::detail::secure
