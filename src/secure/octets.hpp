// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Bytes and texts in the types of cryptographic libraries.
inline const unsigned char* as_octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
inline unsigned char* as_octets(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
inline const unsigned char* as_octets(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace tendon::v0::detail
