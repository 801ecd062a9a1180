// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tendon::test {
namespace {

using namespace detail;

std::string utf8_of(unsigned code_point) {  // below U+0800
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

TEST(Text, EveryControlCharacterBecomesASpaceAndNothingElseDoes) {
  for (unsigned point = 0; point < 0x800; ++point) {
    const std::string text = "a" + utf8_of(point) + "z";
    const bool control = point < 0x20 || (point >= 0x7F && point < 0xA0);
    EXPECT_EQ(is_clean(text), !control) << point;
    EXPECT_EQ(cleaned(text), control ? "a z" : text) << point;
    EXPECT_TRUE(is_utf8(text)) << point;
  }
}

TEST(Text, BytesThatAreNotUtf8BecomeSpaces) {
  for (unsigned byte = 0x80; byte < 0x100; ++byte) {
    const std::string text = {'a', static_cast<char>(byte), 'z'};
    EXPECT_FALSE(is_clean(text)) << byte;
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

}  // namespace
}  // namespace tendon::test
