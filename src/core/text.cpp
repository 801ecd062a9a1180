// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "core/c_locale.hpp"
#include "core/float_mode.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

struct Range {
  char32_t first;
  char32_t last;
};

// Beyond the controls, in order: Default_Ignorable_Code_Point, Bidi_Control, Zl and Zp of Unicode
// 15, and the marks of annotations.
constexpr std::array kHidden = {
    Range{0x00AD, 0x00AD},    // soft hyphen
    Range{0x034F, 0x034F},    // combining grapheme joiner
    Range{0x061C, 0x061C},    // Arabic letter mark
    Range{0x115F, 0x1160},    // Hangul fillers
    Range{0x17B4, 0x17B5},    // Khmer inherent vowels
    Range{0x180B, 0x180F},    // Mongolian variation selectors and vowel separator
    Range{0x200B, 0x200F},    // zero width space, joiners, marks of direction
    Range{0x2028, 0x202E},    // ends of line and paragraph, embeddings and overrides
    Range{0x2060, 0x206F},    // word joiner, invisible operators, isolates
    Range{0x3164, 0x3164},    // Hangul filler
    Range{0xFE00, 0xFE0F},    // variation selectors
    Range{0xFEFF, 0xFEFF},    // byte order mark
    Range{0xFFA0, 0xFFA0},    // halfwidth Hangul filler
    Range{0xFFF0, 0xFFFB},    // reserved as ignorable; marks of annotations
    Range{0x1BCA0, 0x1BCA3},  // shorthand format controls
    Range{0x1D173, 0x1D17A},  // musical format controls
    Range{0xE0000, 0xE0FFF},  // tags, further variation selectors
};

}  // namespace

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

char32_t code_point(std::string_view text, std::size_t size) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  char32_t point = size == 1 ? byte(0) : byte(0) & (0x7Fu >> size);
  for (std::size_t i = 1; i < size; ++i) point = point << 6 | (byte(i) & 0x3Fu);
  return point;
}

bool is_hidden(std::string_view text, std::size_t size) {
  if (size == 1 || is_control(text, size)) return is_control(text, size);
  const char32_t point = code_point(text, size);
  const auto* const range =
      std::ranges::lower_bound(kHidden, point, {}, [](const Range& each) { return each.last; });
  return range != kHidden.end() && range->first <= point;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t count = character_bytes(text);
    if (count == 0) return false;
    text.remove_prefix(count);
  }
  return true;
}

bool is_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (size == 0 || is_control(text, size)) return false;
    text.remove_prefix(size);
  }
  return true;
}

bool is_clean(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (size == 0 || is_hidden(text, size)) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string cleaned(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    const bool kept = size != 0 && !is_hidden(text, size);
    const std::string_view taken = kept ? text.substr(0, size) : std::string_view(" ");
    if (out.size() + taken.size() > max_bytes) break;
    out += taken;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string escaped_byte(char byte) {
  const auto value = static_cast<std::uint8_t>(byte);
  return {'\\', 'x', kHexDigits[value >> 4], kHexDigits[value & 15]};
}

std::string escaped(std::string_view text, std::size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    const std::string broken = size == 0 ? escaped_byte(text.front()) : std::string();
    const std::string_view taken = size == 0 ? std::string_view(broken) : text.substr(0, size);
    if (taken.size() > max_bytes - out.size()) break;
    out += taken;
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string number_text(double number) {
  char digits[32];
  const DefaultFloatMode mode;  // a program may flush the smallest ones to zero
  const auto end = std::to_chars(std::begin(digits), std::end(digits), number).ptr;
  return {std::begin(digits), end};
}

std::string errno_text(int errno_value) {
  const CLocale english;
  return std::strerror(errno_value);
}

std::string to_hex(Bytes bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    text += kHexDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kHexDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

bool from_hex(std::string_view text, MutableBytes bytes) {
  if (text.size() != 2 * bytes.size()) return false;
  // All bits where `value` is one of 0 to `last`, else none: no branch and no table.
  const auto is_up_to = [](int value, int last) { return ~((value | (last - value)) >> 31); };
  int wrong = 0;
  const auto value_of = [&](char character) {
    const int byte = static_cast<std::uint8_t>(character);
    const int digit = byte - '0';
    const int letter = (byte | 0x20) - 'a';
    const int is_digit = is_up_to(digit, 9);
    const int is_letter = is_up_to(letter, 5);
    wrong |= ~(is_digit | is_letter);
    return (digit & is_digit) | ((letter + 10) & is_letter);
  };
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(value_of(text[2 * i]) << 4 | value_of(text[2 * i + 1]));
  return wrong == 0;
}

}  // namespace tendon::v0::detail
