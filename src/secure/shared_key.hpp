// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>

#include "secure/secret_bytes.hpp"

namespace tendon::v0::detail {

inline constexpr std::size_t kSharedKeyBytes = 32;
/// Longest label of a key and longest name in a certificate: X.509 has no longer common name.
inline constexpr std::size_t kMaxLabelBytes = 64;
/// The identity of a peer that proved a shared key is this and the key's label.
inline constexpr std::string_view kKeyPrefix = "key:";

/// A key that several hosts have. Its holders are one identity, `key:LABEL`.
struct SharedKey {
  std::string label;
  SecretBytes secret;  ///< kSharedKeyBytes of them
  std::string made;    ///< when, as its file says: "2026-11-30T09:29:15Z", or empty
};

/// Is it a label of a key, or a name that a certificate may have? 1 to kMaxLabelBytes letters,
/// digits, '.', '_' and '-' of ASCII, the first one a letter or a digit.
[[nodiscard]] bool is_label(std::string_view text);
/// What is_label() wants, in words.
[[nodiscard]] std::string legal_label();

/// A fresh one, of random bytes of the kernel.
[[nodiscard]] Result<SharedKey> make_shared_key(std::string label);
/// 16 hexadecimal digits by which people compare keys: HKDF-SHA256 of the key, with a salt that
/// nothing else uses, so that it says nothing about the key or about what is derived from it. It is
/// the same in all versions.
[[nodiscard]] Result<std::string> key_id(const SharedKey& key);

}  // namespace tendon::v0::detail
