// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "tensor/text.hpp"

namespace tendon::test {
namespace {

using detail::quote_text;

TEST(QuoteText, ShowsEveryByteThatCouldHide) {
  EXPECT_EQ(quote_text("weights/\u00e9\u65e5"), "'weights/\u00e9\u65e5'");
  EXPECT_EQ(quote_text("a\nb\x1b[2J"), "'a\\x0ab\\x1b[2J'");
  EXPECT_EQ(quote_text("a\xffz"), "'a\\xffz'");
  EXPECT_EQ(quote_text("gpj\u202e.exe"), "'gpj\\xe2\\x80\\xae.exe'");
  EXPECT_EQ(quote_text("model\u200b"), "'model\\xe2\\x80\\x8b'");
  EXPECT_EQ(quote_text("a\U000e0041"), "'a\\xf3\\xa0\\x81\\x81'");
}

TEST(QuoteText, CutsLongOnesAtACharacter) {
  EXPECT_EQ(quote_text(std::string(128, 'x')), "'" + std::string(128, 'x') + "'");
  EXPECT_EQ(quote_text(std::string(127, 'x') + "\u00e9z"),
            "'" + std::string(127, 'x') + "\u00e9...'");
}

}  // namespace
}  // namespace tendon::test
