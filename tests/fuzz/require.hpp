// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <memory>
#include <tendon/memory/storage.hpp>
#include <vector>

namespace tendon::test {

/// Aborts in every build, which a fuzzer finds.
inline void require(bool condition) {
  if (!condition) std::abort();
}

/// Copies into memory of exactly its size, so that a sanitizer sees a read beyond its end.
inline Storage exact_storage(Bytes bytes) {
  const auto memory = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  return Storage(memory, memory->data(), memory->size(), Access::read_only);
}

}  // namespace tendon::test
