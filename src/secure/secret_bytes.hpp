// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <tendon/core/bytes.hpp>
#include <utility>

namespace tendon::v0::detail {

/// Bytes that nobody may see: a key, or the text of a file that has one. Nothing prints them, and a
/// copy of them is made by name.
///
/// Owns:    the bytes, which it overwrites when it is destroyed or gets others.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    one allocation, and one pass over the bytes at its end.
class SecretBytes {
 public:
  SecretBytes() = default;
  /// All zero, to be filled.
  explicit SecretBytes(std::size_t size_bytes)
      : bytes_(std::make_unique<std::byte[]>(size_bytes)), size_bytes_(size_bytes) {}
  [[nodiscard]] static SecretBytes copy_of(Bytes bytes);
  SecretBytes(SecretBytes&& other) noexcept
      : bytes_(std::move(other.bytes_)), size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  SecretBytes& operator=(SecretBytes&& other) noexcept;
  SecretBytes(const SecretBytes&) = delete;
  SecretBytes& operator=(const SecretBytes&) = delete;
  ~SecretBytes() { wipe(); }

  [[nodiscard]] Bytes bytes() const noexcept { return {bytes_.get(), size_bytes_}; }
  [[nodiscard]] MutableBytes writable() noexcept { return {bytes_.get(), size_bytes_}; }

 private:
  void wipe() noexcept;

  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_bytes_ = 0;
};

}  // namespace tendon::v0::detail
