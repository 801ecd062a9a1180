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

/// As commands write them; "auto" is read, too.
[[nodiscard]] consteval std::array<Word<SealerKind>, 3> words_of(SealerKind) {
  using enum SealerKind;
  return {{{automatic, "automatic"}, {ipsec_mb, "ipsec-mb"}, {openssl, "openssl"}}};
}

/// Which kind `automatic` is from now on in this process, where it is asked for by nobody but a
/// measurement; `automatic` takes that back. A link that exists keeps what it has.
void prefer_sealer(SealerKind kind) noexcept;
/// The kind that `automatic` is here and now.
[[nodiscard]] SealerKind automatic_sealer();

/// Errors: not_supported, of a kind that this build or processor does not have; internal.
[[nodiscard]] Result<std::unique_ptr<Sealer>> make_sealer(SealerKind kind, const AeadKey& key);

}  // namespace tendon::v0::detail::secure
