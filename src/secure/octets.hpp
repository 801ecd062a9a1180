// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tendon/core/bytes.hpp>

namespace tendon::v0::detail {

/// Bytes as libraries of cryptography name them.
inline const unsigned char* as_octets(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
inline unsigned char* as_octets(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

}  // namespace tendon::v0::detail
