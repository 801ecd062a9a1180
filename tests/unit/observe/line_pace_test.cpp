// SPDX-License-Identifier: Apache-2.0
// Lines that are written once a cause and minute.
#include "observe/line_pace.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace {

using namespace std::chrono_literals;
using tendon::detail::LinePace;

TEST(LinePace, OneLineOfACauseIsSaidInAMinute) {
  LinePace pace;
  const LinePace::Clock::time_point begin{};
  EXPECT_EQ(pace.next("a", begin), 0U);
  EXPECT_EQ(pace.next("a", begin + 1s), std::nullopt);
  EXPECT_EQ(pace.next("b", begin + 1s), 0U);
  EXPECT_EQ(pace.next("a", begin + LinePace::kPause - 1ns), std::nullopt);
  EXPECT_EQ(pace.next("a", begin + LinePace::kPause), 2U) << "so many were held back";
  EXPECT_EQ(pace.next("a", begin + 2 * LinePace::kPause), 0U);
}

TEST(LinePace, TheOldestCauseIsForgottenForANewOne) {
  LinePace pace;
  auto now = LinePace::Clock::time_point{};
  for (std::size_t n = 0; n < LinePace::kMostCauses; ++n)
    EXPECT_EQ(pace.next(std::to_string(n), now += 1ms), 0U);
  EXPECT_EQ(pace.next("0", now), std::nullopt);
  EXPECT_EQ(pace.next("one more", now), 0U);
  EXPECT_EQ(pace.next("1", now), std::nullopt);
  EXPECT_EQ(pace.next("0", now), 0U);
}

TEST(LinePace, ALineIsCutBetweenCharactersAndHasNoHiddenOnes) {
  const std::string most(LinePace::kMostLineBytes, 'x');
  EXPECT_EQ(LinePace::cut(most), most);
  const std::string cut = LinePace::cut(most + 'x');
  EXPECT_EQ(cut, std::string(LinePace::kMostLineBytes - 3, 'x') + "...");
  EXPECT_EQ(LinePace::cut("a\nb\x1b[2J"), "a b [2J");
  EXPECT_EQ(LinePace::cut("abc\u00e9\u00e9\u00e9", 8), "abc\u00e9...");
}

}  // namespace
