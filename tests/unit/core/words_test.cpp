// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tendon/core/error.hpp>
#include <tendon/core/member_event.hpp>
#include <tendon/core/words.hpp>
#include <utility>

namespace words_of_another_namespace {
namespace {

enum class Colour : std::uint8_t { red = 1, green = 2, automatic = 9 };
TENDON_WORDS(Colour, red, green, automatic);

}  // namespace
}  // namespace words_of_another_namespace

namespace {

using words_of_another_namespace::Colour;

TEST(Words, AreThoseOfTheTable) {
  static_assert(to_string(Colour::green) == "green");
  EXPECT_EQ(to_string(Colour{7}), "unknown");
  EXPECT_EQ(tendon::parse_word<Colour>("red"), Colour::red);
  for (const char* const wrong : {"", "Red", "red,", "red, green", "unknown"})
    EXPECT_EQ(tendon::parse_word<Colour>(wrong), std::nullopt) << wrong;
  EXPECT_EQ(tendon::legal_words<Colour>(), "red, green, automatic");
  EXPECT_EQ(tendon::legal_words<Colour>("'"), "'red', 'green', 'automatic'");
}

TEST(Words, AutomaticMayBeWrittenShorter) {
  EXPECT_EQ(tendon::parse_word<Colour>("auto"), Colour::automatic);
  EXPECT_EQ(tendon::parse_word<tendon::Remedy>("auto"), std::nullopt);
}

TEST(Words, NumbersThatNameNoneAreRefused) {
  EXPECT_EQ(tendon::enumerator_from<Colour>(9), Colour::automatic);
  for (const std::uint64_t wrong : {0ull, 3ull, 257ull, ~0ull})
    EXPECT_EQ(tendon::enumerator_from<Colour>(wrong), std::nullopt) << wrong;
}

}  // namespace
