// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tendon/core/bytes.hpp>
#include <utility>

namespace tendon::v0::detail {

/// Secret bytes: a key, or the text of a file that has one. Nothing prints them, and only copy_of()
/// copies them. A move leaves no copy, because the bytes stay in place.
///
/// Owns:    the bytes, in SecretMemory. It overwrites them when it is destroyed or assigned; it has
///          none after a move, and zeros in a forked child.
/// Threads: a value.
/// Errors:  std::bad_alloc.
/// Blocks:  never.
/// Cost:    that of SecretMemory, and one pass over the bytes at its end.
class SecretBytes {
 public:
  SecretBytes() = default;
  /// Makes zeros, to be filled.
  explicit SecretBytes(std::size_t size_bytes);
  [[nodiscard]] static SecretBytes copy_of(Bytes bytes);
  SecretBytes(SecretBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  SecretBytes& operator=(SecretBytes&& other) noexcept;
  SecretBytes(const SecretBytes&) = delete;
  SecretBytes& operator=(const SecretBytes&) = delete;
  ~SecretBytes() { give_back(); }

  [[nodiscard]] Bytes bytes() const noexcept { return bytes_; }
  [[nodiscard]] MutableBytes writable() noexcept { return bytes_; }

 private:
  void give_back() noexcept;

  MutableBytes bytes_;
};

}  // namespace tendon::v0::detail
