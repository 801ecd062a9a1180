// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/result.hpp>

#include "secure/sealer.hpp"

namespace tendon::v0::detail::secure {

enum class SealerKind : std::uint8_t {
  automatic,  ///< libipsec-mb where this build has it and this processor has AES-NI
  ipsec_mb,
  openssl,
};

/// Errors: not_supported, of a kind that this build or processor does not have; internal.
[[nodiscard]] Result<std::unique_ptr<Sealer>> make_sealer(SealerKind kind, const AeadKey& key);

}  // namespace tendon::v0::detail::secure
