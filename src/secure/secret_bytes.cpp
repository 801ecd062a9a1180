// SPDX-License-Identifier: Apache-2.0
#include "secure/secret_bytes.hpp"

#include <algorithm>

#include "secure/secret_memory.hpp"

namespace tendon::v0::detail {

SecretBytes::SecretBytes(std::size_t size_bytes)
    : bytes_(size_bytes == 0 ? MutableBytes() : SecretMemory::take(size_bytes)) {}

SecretBytes SecretBytes::copy_of(Bytes bytes) {
  SecretBytes copy(bytes.size());
  std::ranges::copy(bytes, copy.bytes_.begin());
  return copy;
}

SecretBytes& SecretBytes::operator=(SecretBytes&& other) noexcept {
  if (this != &other) {
    give_back();
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

void SecretBytes::give_back() noexcept {
  if (!bytes_.empty()) SecretMemory::give_back(bytes_);
}

}  // namespace tendon::v0::detail
