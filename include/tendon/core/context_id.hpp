// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <tendon/core/export.hpp>

namespace tendon {
inline namespace v0 {

/// The random 128-bit number of a Context. Liveness, links and return rings belong to a pair of
/// these.
///
/// Owns:    16 bytes.
/// Threads: a value.
/// Errors:  none; all zero means "none".
/// Blocks:  never.
/// Cost:    16 bytes.
struct TENDON_API ContextId {
  std::array<std::byte, 16> bytes{};

  [[nodiscard]] bool is_none() const noexcept { return *this == ContextId{}; }
  /// 32 lower-case hexadecimal digits.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const ContextId&, const ContextId&) = default;
  friend auto operator<=>(const ContextId&, const ContextId&) = default;
};

}  // namespace v0
}  // namespace tendon

template <>
struct std::hash<tendon::ContextId> {
  std::size_t operator()(const tendon::ContextId& id) const noexcept {
    // The bytes are random already: any eight of them are a hash.
    std::size_t value = 0;
    std::memcpy(&value, id.bytes.data(), sizeof value);
    return value;
  }
};
