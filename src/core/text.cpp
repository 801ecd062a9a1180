// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <algorithm>
#include <cstdint>

namespace tendon::inline v0::detail {

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

bool is_control(std::string_view text, std::size_t size) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  return first < 0x20 || first == 0x7F ||
         (first == 0xC2 && size == 2 && static_cast<std::uint8_t>(text[1]) < 0xA0);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    if (count == 0) return false;
    text.remove_prefix(count);
  }
  return true;
}

bool is_clean(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (size == 0 || is_control(text, size)) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string cleaned(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    const bool kept = size != 0 && !is_control(text, size);
    const std::string_view taken = kept ? text.substr(0, size) : std::string_view(" ");
    if (out.size() + taken.size() > max_bytes) break;
    out += taken;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

}  // namespace tendon::inline v0::detail
