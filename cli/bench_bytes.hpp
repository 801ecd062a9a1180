// SPDX-License-Identifier: Apache-2.0
// Test patterns that make the pieces of a benchmark's data distinguishable.
#pragma once

#include <cstdint>
#include <cstring>
#include <tendon/core/bytes.hpp>

namespace tendon::cli {

/// The word at `index`. It depends on the seed and the place, so that swapped pieces are detected.
[[nodiscard]] inline std::uint64_t patterned_word(std::uint64_t seed, std::size_t index) {
  const std::uint64_t mixed = (seed + 1) * 0x9e3779b97f4a7c15 + index * 0xbf58476d1ce4e5b9;
  return mixed ^ (mixed >> 31);
}

inline void fill_patterned(MutableBytes bytes, std::uint64_t seed) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = patterned_word(seed, i);
    std::memcpy(bytes.data() + i, &word, 8);
  }
  for (; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(patterned_word(seed, i));
}

[[nodiscard]] inline bool is_patterned(Bytes bytes, std::uint64_t seed) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = patterned_word(seed, i);
    if (std::memcmp(bytes.data() + i, &word, 8) != 0) return false;
  }
  for (; i < bytes.size(); ++i)
    if (bytes[i] != static_cast<std::byte>(patterned_word(seed, i))) return false;
  return true;
}

}  // namespace tendon::cli
