// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>

#include "secure/secret_bytes.hpp"

namespace tendon::v0::detail {

inline constexpr std::size_t kSharedKeyBytes = 32;
/// The longest label of a key, and the longest name in a certificate, because of X.509's common
/// name.
inline constexpr std::size_t kMaxLabelBytes = 64;
/// The identity of a peer that proved a shared key: this prefix and the key's label.
inline constexpr std::string_view kKeyPrefix = "key:";

/// A key that several hosts share. Its holders are one identity, `key:LABEL`.
struct SharedKey {
  std::string label;
  SecretBytes secret;  ///< kSharedKeyBytes bytes
  std::string made;    ///< the time in its file, such as "2026-11-30T09:29:15Z", or empty
};

/// True for a valid label of a key, or name in a certificate: 1 to kMaxLabelBytes letters, digits,
/// '.', '_' and '-' of ASCII, beginning with a letter or a digit.
[[nodiscard]] bool is_label(std::string_view text);
/// The rule of is_label() in words.
[[nodiscard]] std::string legal_label();

/// Makes a new key from random bytes of the kernel.
[[nodiscard]] Result<SharedKey> make_shared_key(std::string label);
/// 16 hexadecimal digits by which people compare keys. It is HKDF-SHA256 of the key, with a salt
/// for this use alone, so that it reveals nothing about the key or the values derived from it. It
/// is the same in all versions.
[[nodiscard]] Result<std::string> key_id(const SharedKey& key);

}  // namespace tendon::v0::detail
