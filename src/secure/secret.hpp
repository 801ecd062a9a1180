// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tendon/core/bytes.hpp>

#include "secure/secret_bytes.hpp"

namespace tendon::v0::detail::secure {

/// A fixed number of secret bytes, zero at first. Precondition of bytes(): the object was not moved
/// from.
///
/// Owns, Threads, Errors, Blocks, Cost: as SecretBytes.
template <std::size_t kBytes>
class Secret {
 public:
  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const noexcept {
    return memory_.bytes().template first<kBytes>();
  }
  [[nodiscard]] std::span<std::byte, kBytes> bytes() noexcept {
    return memory_.writable().template first<kBytes>();
  }

 private:
  SecretBytes memory_{kBytes};
};

}  // namespace tendon::v0::detail::secure
