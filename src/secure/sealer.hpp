// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <tendon/core/bytes.hpp>

#include "secure/secret.hpp"

namespace tendon::v0::detail::secure {

using AeadKey = Secret<32>;
using Nonce = std::array<std::byte, 12>;
inline constexpr std::size_t kTagBytes = 16;

/// AES-256-GCM (NIST SP 800-38D) under one key.
///
/// Owns:    the key, which its destructor wipes.
/// Threads: one at a time.
/// Errors:  false; the output is then unspecified, and nobody may use it.
/// Blocks:  never.
/// Cost:    one pass over the bytes; no allocation.
class Sealer {
 public:
  Sealer() = default;
  virtual ~Sealer() = default;
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  /// Writes the pieces, sealed one after another, and then the tag. The caller never seals with a
  /// nonce twice. Precondition: there is a piece, and none is empty; `sealed` has exactly the
  /// needed size and overlaps no piece.
  [[nodiscard]] virtual bool seal(const Nonce& nonce, Bytes header, std::span<const Bytes> pieces,
                                  MutableBytes sealed) = 0;
  /// Opens the output of seal(): fills `front` with the first bytes, and decrypts the others in
  /// place. False: the tag does not match this key, nonce, header and text. Precondition: `sealed`
  /// has a tag and more bytes than `front`, and does not overlap it.
  [[nodiscard]] virtual bool open(const Nonce& nonce, Bytes header, MutableBytes sealed,
                                  MutableBytes front) = 0;
};

}  // namespace tendon::v0::detail::secure
