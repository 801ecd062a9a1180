// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>

#include "secure/sealer.hpp"

namespace tendon::v0::detail::secure {

enum class SealerKind : std::uint8_t {
  automatic,  ///< libipsec-mb where this build has it and this processor has AES-NI
  ipsec_mb,
  openssl,
};

/// The names in commands; "auto" is accepted too.
[[nodiscard]] consteval std::array<Word<SealerKind>, 3> words_of(SealerKind) {
  using enum SealerKind;
  return {{{automatic, "automatic"}, {ipsec_mb, "ipsec-mb"}, {openssl, "openssl"}}};
}

/// Sets the kind that `automatic` selects in this process from now on; only a measurement does so.
/// `automatic` restores the default. Existing links keep their sealers.
void prefer_sealer(SealerKind kind) noexcept;
/// The kind that `automatic` selects here and now.
[[nodiscard]] SealerKind automatic_sealer();

/// Errors: not_supported, for a kind that this build or processor does not have; internal.
[[nodiscard]] Result<std::unique_ptr<Sealer>> make_sealer(SealerKind kind, const AeadKey& key);

}  // namespace tendon::v0::detail::secure
