// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/crypto.h>

#include <cstddef>
#include <tendon/core/bytes.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail::secure {

/// Bytes that nobody may learn: of a key, or made from one.
///
/// Owns:    its bytes, which are overwritten at its end and when others are moved into it.
/// Threads: as a vector.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    one allocation.
class SecretBytes {
 public:
  SecretBytes() = default;
  explicit SecretBytes(std::size_t size) : bytes_(size) {}
  explicit SecretBytes(Bytes copied) : bytes_(copied.begin(), copied.end()) {}
  SecretBytes(SecretBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SecretBytes& operator=(SecretBytes&& other) noexcept {
    if (this != &other) {
      wipe();
      bytes_ = std::exchange(other.bytes_, {});
    }
    return *this;
  }
  SecretBytes(const SecretBytes&) = delete;
  SecretBytes& operator=(const SecretBytes&) = delete;
  ~SecretBytes() { wipe(); }

  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }
  [[nodiscard]] MutableBytes mutable_bytes() noexcept { return bytes_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }

 private:
  void wipe() noexcept {
    if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
    bytes_.clear();
  }

  std::vector<std::byte> bytes_;
};

}  // namespace tendon::v0::detail::secure
