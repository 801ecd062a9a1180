// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <array>
#include <cstddef>
#include <tendon/core/bytes.hpp>

namespace tendon::v0::detail::secure {

/// Bytes that nobody else may learn. They are wiped when it is destroyed or moved from, and cannot
/// be copied.
template <std::size_t kBytes>
class Secret {
 public:
  Secret() = default;
  ~Secret() { wipe(); }
  Secret(Secret&& other) noexcept : bytes_(other.bytes_) { other.wipe(); }
  Secret& operator=(Secret&& other) noexcept {
    if (this != &other) {
      bytes_ = other.bytes_;
      other.wipe();
    }
    return *this;
  }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  [[nodiscard]] std::span<const std::byte, kBytes> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte, kBytes> bytes() noexcept { return bytes_; }

 private:
  // A compiler may leave out a memset of what is not read again, but not this.
  void wipe() noexcept { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

  std::array<std::byte, kBytes> bytes_{};
};

}  // namespace tendon::v0::detail::secure
