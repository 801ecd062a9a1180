// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>

namespace tendon::test {
namespace {

using namespace detail;

std::string utf8_of(char32_t point) {
  const auto tail = [&](unsigned shift) {
    return static_cast<char>(0x80 | (point >> shift & 0x3F));
  };
  if (point < 0x80) return {static_cast<char>(point)};
  if (point < 0x800) return {static_cast<char>(0xC0 | point >> 6), tail(0)};
  if (point < 0x10000) return {static_cast<char>(0xE0 | point >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | point >> 18), tail(12), tail(6), tail(0)};
}

// The characters of the Unicode Character Database 15 in the categories at the right.
bool hides(char32_t point) {
  const auto in = [&](char32_t first, char32_t last) { return first <= point && point <= last; };
  const bool is_control = in(0, 0x1F) || in(0x7F, 0x9F);         // Cc
  const bool is_separator = in(0x2028, 0x2029);                  // Zl, Zp
  const bool is_bidi = point == 0x061C || in(0x200E, 0x200F) ||  // Bidi_Control
                       in(0x202A, 0x202E) || in(0x2066, 0x2069);
  const bool is_ignorable =  // Default_Ignorable_Code_Point
      point == 0xAD || point == 0x034F || point == 0x061C || in(0x115F, 0x1160) ||
      in(0x17B4, 0x17B5) || in(0x180B, 0x180F) || in(0x200B, 0x200F) || in(0x202A, 0x202E) ||
      in(0x2060, 0x206F) || point == 0x3164 || in(0xFE00, 0xFE0F) || point == 0xFEFF ||
      point == 0xFFA0 || in(0xFFF0, 0xFFF8) || in(0x1BCA0, 0x1BCA3) || in(0x1D173, 0x1D17A) ||
      in(0xE0000, 0xE0FFF);
  const bool is_annotation = in(0xFFF9, 0xFFFB);  // interlinear annotation
  return is_control || is_separator || is_bidi || is_ignorable || is_annotation;
}

TEST(Text, EveryHiddenCharacterBecomesASpaceAndNothingElseDoes) {
  for (char32_t point = 0; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;  // surrogates are not characters
    const std::string text = "a" + utf8_of(point) + "z";
    const std::string_view rest = std::string_view(text).substr(1);
    const std::size_t size = text.size() - 2;
    const bool hidden = hides(point);
    ASSERT_TRUE(is_utf8(text)) << std::uint32_t{point};
    ASSERT_EQ(code_point(rest, size), point);
    ASSERT_EQ(is_hidden(rest, size), hidden) << std::uint32_t{point};
    ASSERT_EQ(is_clean(text), !hidden) << std::uint32_t{point};
    ASSERT_EQ(is_text(text), point >= 0x20 && (point < 0x7F || point >= 0xA0));
    ASSERT_EQ(cleaned(text), hidden ? "a z" : text) << std::uint32_t{point};
  }
}

TEST(Text, BytesThatAreNotUtf8BecomeSpaces) {
  for (unsigned byte = 0x80; byte < 0x100; ++byte) {
    const std::string text = {'a', static_cast<char>(byte), 'z'};
    EXPECT_FALSE(is_clean(text)) << byte;
    EXPECT_FALSE(is_text(text)) << byte;
    EXPECT_FALSE(is_utf8(text)) << byte;
    EXPECT_EQ(cleaned(text), "a z") << byte;
  }
  // Overlong ESC, a surrogate, above U+10FFFF, cut off.
  for (const std::string text : {"\xC0\x9B", "\xE0\x80\x9B", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                 "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_FALSE(is_clean(text));
    EXPECT_EQ(cleaned(text), std::string(text.size(), ' '));
  }
}

TEST(Text, NoCharacterIsCutInHalf) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";  // 1 + 2 + 3 + 4 bytes
  constexpr std::array<std::size_t, 11> kWhole{0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (std::size_t limit = 0; limit < kWhole.size(); ++limit)
    EXPECT_EQ(cleaned(text, limit), text.substr(0, kWhole[limit])) << limit;
  EXPECT_EQ(cleaned(text), text);
  EXPECT_EQ(cleaned(""), "");
  EXPECT_TRUE(is_clean(""));
}

TEST(Text, WhatIsNotUtf8IsEscapedAndAllElseStays) {
  constexpr std::size_t kEnough = 100;
  EXPECT_EQ(escaped("", kEnough), "");
  EXPECT_EQ(escaped("one\n\ttwo \xE2\x82\xAC \\x", kEnough), "one\n\ttwo \xE2\x82\xAC \\x");
  EXPECT_EQ(escaped("caf\xE9!", kEnough), "caf\\xe9!");
  EXPECT_EQ(escaped("\xE2\x82", kEnough), "\\xe2\\x82");
  EXPECT_EQ(escaped("\xED\xA0\x80", kEnough), "\\xed\\xa0\\x80") << "a surrogate";
  for (unsigned byte = 0x80; byte < 0x100; ++byte)
    EXPECT_TRUE(is_utf8(escaped(std::string{'a', static_cast<char>(byte), 'z'}, kEnough))) << byte;
}

TEST(Text, NeitherACharacterNorAnEscapeIsCutInHalf) {
  const std::string text = "a\xC3\xA9\xFF\xF0\x9F\x98\x80";
  const std::string whole = "a\xC3\xA9\\xff\xF0\x9F\x98\x80";  // 1 + 2 + 4 + 4 bytes
  constexpr std::array<std::size_t, 12> kWhole{0, 1, 1, 3, 3, 3, 3, 7, 7, 7, 7, 11};
  for (std::size_t limit = 0; limit < kWhole.size(); ++limit)
    EXPECT_EQ(escaped(text, limit), whole.substr(0, kWhole[limit])) << limit;
}

TEST(Text, HexIsReadInEitherCaseAndNothingElseIs) {
  std::array<std::byte, 3> bytes{};
  EXPECT_TRUE(from_hex("09afAF", bytes));
  EXPECT_EQ(to_hex(bytes), "09afaf");
  EXPECT_TRUE(from_hex("", MutableBytes()));
  for (const std::string_view other : {"09afa", "09afaf0", "", "09afag"})
    EXPECT_FALSE(from_hex(other, bytes)) << other;
  for (int value = 0; value < 256; ++value) {
    const std::string text = {'0', static_cast<char>(value)};
    const bool is_digit = std::isxdigit(value) != 0;
    EXPECT_EQ(from_hex(text, MutableBytes(bytes).first(1)), is_digit) << value;
    EXPECT_TRUE(!is_digit || std::to_integer<int>(bytes[0]) == std::stoi(text, nullptr, 16));
  }
}

}  // namespace
}  // namespace tendon::test
