// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <tendon/core/deadline.hpp>

namespace tendon {
namespace {

using namespace std::chrono_literals;

TEST(Deadline, ZeroAndLessPoll) {
  for (const Deadline deadline : {Deadline(0s), Deadline(-1s), Deadline(std::chrono::hours::min()),
                                  Deadline::now(), Deadline(std::chrono::duration<double>(0.0))}) {
    EXPECT_TRUE(deadline.is_poll());
    EXPECT_TRUE(deadline.has_passed());
    EXPECT_EQ(deadline.remaining(), 0ns);
    EXPECT_FALSE(deadline.is_never());
  }
}

TEST(Deadline, NeverNeverPasses) {
  EXPECT_TRUE(Deadline::never().is_never());
  EXPECT_FALSE(Deadline::never().has_passed());
  EXPECT_FALSE(Deadline::never().is_poll());
  EXPECT_EQ(Deadline::never().remaining(), std::chrono::nanoseconds::max());
}

// now + hours::max() lies in the past when it is added without a check.
TEST(Deadline, SaturatesInsteadOfOverflowing) {
  for (const Deadline deadline :
       {Deadline(std::chrono::hours::max()), Deadline(std::chrono::nanoseconds::max()),
        Deadline(std::chrono::duration<double>(1e300)),
        Deadline(std::chrono::duration<double>(std::numeric_limits<double>::infinity()))}) {
    EXPECT_TRUE(deadline.is_never());
    EXPECT_FALSE(deadline.has_passed());
  }
}

TEST(Deadline, NotANumberPolls) {
  EXPECT_TRUE(
      Deadline(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN())).is_poll());
}

TEST(Deadline, RemainingCountsDownFromTheDuration) {
  const auto before = Deadline::Clock::now();
  const Deadline deadline(1h);
  const auto after = Deadline::Clock::now();
  EXPECT_GE(deadline.time_point(), before + 1h);
  EXPECT_LE(deadline.time_point(), after + 1h);
  EXPECT_LE(deadline.remaining(), 1h);
  EXPECT_GT(deadline.remaining(), 0ns);
  EXPECT_FALSE(deadline.has_passed());
}

TEST(Deadline, AMomentThatWasHasPassed) {
  const Deadline deadline = Deadline::at(Deadline::Clock::now() - 1ns);
  EXPECT_TRUE(deadline.has_passed());
  EXPECT_EQ(deadline.remaining(), 0ns);
  EXPECT_FALSE(deadline.is_poll()) << "only a deadline that needs no clock polls";
}

TEST(Deadline, PartsOfANanosecondRoundUp) {
  const Deadline deadline(std::chrono::duration<double, std::nano>(0.25));
  EXPECT_FALSE(deadline.is_poll());
}

TEST(Deadline, EarlierPicksTheFirst) {
  const Deadline soon = Deadline::at(Deadline::Clock::now());
  EXPECT_EQ(earlier(soon, Deadline::never()).time_point(), soon.time_point());
  EXPECT_TRUE(earlier(soon, Deadline::now()).is_poll());
}

}  // namespace
}  // namespace tendon
