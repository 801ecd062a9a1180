// SPDX-License-Identifier: Apache-2.0
#include "secure/secret_bytes.hpp"

#include <openssl/crypto.h>

#include <algorithm>

namespace tendon::v0::detail {

SecretBytes SecretBytes::copy_of(Bytes bytes) {
  SecretBytes copy(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.bytes_.get());
  return copy;
}

SecretBytes& SecretBytes::operator=(SecretBytes&& other) noexcept {
  if (this != &other) {
    wipe();
    bytes_ = std::move(other.bytes_);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

// A plain fill of memory that is freed next is left out by the compiler.
void SecretBytes::wipe() noexcept {
  if (bytes_ != nullptr) OPENSSL_cleanse(bytes_.get(), size_bytes_);
}

}  // namespace tendon::v0::detail
