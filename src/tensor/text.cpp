// SPDX-License-Identifier: Apache-2.0
#include "tensor/text.hpp"

#include <cstdint>

namespace tendon::inline v0::detail {
namespace {

// Bytes of the character at the front, 0 when it is not well formed (Unicode 15, table 3-7).
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  std::size_t count = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    count = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    count = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    count = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < count || byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < count; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return count;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    if (count == 0) return false;
    text.remove_prefix(count);
  }
  return true;
}

std::string quote_text(std::string_view text) {
  constexpr std::size_t kMaxBytes = 128;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "'";
  std::size_t used = 0;
  while (used < text.size() && used < kMaxBytes) {
    const std::string_view rest = text.substr(used);
    const std::size_t count = character_bytes(rest);
    const auto first = static_cast<std::uint8_t>(rest.front());
    // U+0080 to U+009F, C2 80 to C2 9F, are control characters too.
    const bool control = first < 0x20 || first == 0x7F ||
                         (first == 0xC2 && count == 2 && static_cast<std::uint8_t>(rest[1]) < 0xA0);
    if (count == 0 || control) {
      for (std::size_t i = 0; i < (count == 0 ? 1 : count); ++i) {
        const auto byte = static_cast<std::uint8_t>(rest[i]);
        out += "\\x";
        out += kHex[byte >> 4];
        out += kHex[byte & 15];
      }
    } else {
      out += rest.substr(0, count);
    }
    used += count == 0 ? 1 : count;
  }
  out += used < text.size() ? "...'" : "'";
  return out;
}

}  // namespace tendon::inline v0::detail
