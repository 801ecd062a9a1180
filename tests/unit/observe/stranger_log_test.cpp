// SPDX-License-Identifier: Apache-2.0
// One line a second about a source, ten about all, and a count of the rest.
#include "observe/stranger_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "support/log_lines.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::Stranger;
using detail::StrangerLog;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class StrangerLines : public testing::Test {
 protected:
  std::optional<StrangerLog::Clock::time_point> refuse(const std::string& source) {
    const std::string address = source + ":" + std::to_string(++port_);
    return log_.refuse("server/01234567", "listener.accept", {address, source}, "no hello", now_);
  }
  static std::string line(const std::string& address) {
    return "listener.accept refused " + address + ": no hello";
  }
  static auto counts(int count) { return HasSubstr("refused " + std::to_string(count) + " more"); }

  StrangerLog log_;
  StrangerLog::Clock::time_point now_{1h};
  int port_ = 0;
  const LogLines lines_;
};

TEST_F(StrangerLines, OneSourceHasALineASecondAndThenACount) {
  EXPECT_EQ(refuse("10.0.0.7"), std::nullopt);
  now_ += 200ms;
  EXPECT_EQ(refuse("10.0.0.7"), now_ + 1s) << "when the count is due";
  EXPECT_EQ(refuse("10.0.0.7"), std::nullopt) << "it is due already";
  EXPECT_EQ(refuse("10.0.0.8"), std::nullopt);
  EXPECT_THAT(lines_.all(), ElementsAre(line("10.0.0.7:1"), line("10.0.0.8:4")));
  now_ += 1s;
  log_.tell_left_out();
  EXPECT_THAT(lines_.all(), ElementsAre(line("10.0.0.7:1"), line("10.0.0.8:4"), counts(2)));
  log_.tell_left_out();
  EXPECT_THAT(lines_.all(), SizeIs(3)) << "once";
}

TEST_F(StrangerLines, TheNextLineOfASourceComesAfterThePause) {
  (void)refuse("10.0.0.7");
  now_ += StrangerLog::kPause - 1ns;
  (void)refuse("10.0.0.7");
  now_ += 1ns;
  (void)refuse("10.0.0.7");
  EXPECT_THAT(lines_.all(), ElementsAre(line("10.0.0.7:1"), line("10.0.0.7:3")));
}

TEST_F(StrangerLines, ManySourcesHaveTenLinesASecond) {
  const int most = static_cast<int>(StrangerLog::kMostLines);
  for (int n = 0; n < most; ++n) EXPECT_EQ(refuse("10.0.1." + std::to_string(n)), std::nullopt);
  EXPECT_THAT(lines_.all(), SizeIs(most));
  EXPECT_EQ(refuse("10.0.2.1"), now_ + 1s) << "the eleventh";
  EXPECT_THAT(lines_.all(), SizeIs(most));
  // The limit of ten holds in any period of a second, not for each second of the clock.
  now_ += 999ms;
  (void)refuse("10.0.2.2");
  EXPECT_THAT(lines_.all(), SizeIs(most));
}

TEST_F(StrangerLines, TheNextRefusalTellsTheCountWhereNobodyElseDoes) {
  for (int n = 0; n < 1000; ++n) (void)refuse("10.0.0.7");
  now_ += 1s;
  (void)refuse("10.0.0.7");
  EXPECT_THAT(lines_.all(), ElementsAre(line("10.0.0.7:1"), counts(999), line("10.0.0.7:1001")));
}

TEST_F(StrangerLines, ALineIsAboutTheContextAndIsCut) {
  std::string context;
  set_log_callback(LogLevel::warn, [&](const LogLine& said) {
    context = said.context;
    EXPECT_EQ(said.level, LogLevel::warn);
    EXPECT_EQ(said.text.size(), StrangerLog::kMostTextBytes);
    EXPECT_EQ(said.text.find('\n'), std::string::npos);
  });
  (void)log_.refuse("server/01234567", "listener.accept", {"10.0.0.7:1", "10.0.0.7"},
                    "a\nb" + std::string(StrangerLog::kMostTextBytes, 'x'), now_);
  EXPECT_EQ(context, "server/01234567");
}

TEST_F(StrangerLines, NobodyIsCountedWhereWarningsAreOff) {
  set_log_callback(LogLevel::error, [](const LogLine&) { FAIL(); });
  for (int n = 0; n < 20; ++n) EXPECT_EQ(refuse("10.0.0.7"), std::nullopt);
  log_.tell_left_out();
}

}  // namespace
}  // namespace tendon::test
