// SPDX-License-Identifier: Apache-2.0
// The moments at which Fence::kill kills, by a clock of the test.
#include "group/membership/fence.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <vector>

namespace tendon::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using namespace std::chrono_literals;

using Clock = Deadline::Clock;
using Awaited = std::vector<AwaitedMember<int>>;

class Fences : public testing::Test {
 protected:
  std::vector<int> due(const Awaited& awaited, Clock::duration after_begin) {
    return fence_.due(awaited, kBegin + after_begin);
  }

  static constexpr auto kTime = 10s;
  static constexpr Clock::time_point kBegin{1000h};
  FenceClock<int> fence_{Deadline::at(kBegin + kTime)};
};

TEST_F(Fences, NobodyIsKilledBeforeTheDeadline) {
  const Awaited both = {{1, true}, {2, false}};
  EXPECT_THAT(due(both, 0s), IsEmpty());
  EXPECT_THAT(due(both, kTime / 2), IsEmpty());
  EXPECT_THAT(due(both, kTime - 1ns), IsEmpty());
  EXPECT_THAT(due(both, kTime), ElementsAre(1, 2));
}

TEST_F(Fences, WhoHasComeInTimeLives) {
  EXPECT_THAT(due({{1, false}, {2, false}}, 0s), IsEmpty());
  EXPECT_THAT(due({{2, false}}, kTime - 1ns), IsEmpty());
  EXPECT_THAT(due({{2, false}}, kTime), ElementsAre(2));
}

TEST_F(Fences, EachIsKilledOnce) {
  EXPECT_THAT(due({{1, true}}, kTime), ElementsAre(1));
  EXPECT_THAT(due({{1, true}}, kTime + 1ms), IsEmpty());
}

// After a death just before the deadline all members have to answer again.
TEST_F(Fences, WhoIsWaitedForSinceAMomentLivesUnlessItIsSilent) {
  const Awaited three = {{1, false}, {2, false}, {3, true}};
  EXPECT_THAT(due({{1, false}}, kTime - kSuspectAfter), IsEmpty());
  EXPECT_THAT(due(three, kTime - 1ms), IsEmpty());
  EXPECT_THAT(due(three, kTime), ElementsAre(1, 3));
}

TEST_F(Fences, WhoHadAnsweredAndIsWaitedForAgainHasItsTimeAgain) {
  EXPECT_THAT(due({{1, false}}, 0s), IsEmpty());
  EXPECT_THAT(due({}, kTime - 2ms), IsEmpty());
  EXPECT_THAT(due({{1, false}}, kTime - 1ms), IsEmpty());
  EXPECT_THAT(due({{1, false}}, kTime), IsEmpty());
}

// The member that held up the agreement is dead, and the next member to lead it hangs as well.
TEST_F(Fences, InTheGraceASilentOneIsKilledToo) {
  EXPECT_THAT(due({{1, true}}, kTime), ElementsAre(1));
  EXPECT_THAT(due({{2, true}, {3, false}}, kTime + 1ms), ElementsAre(2));
}

TEST_F(Fences, WithoutADeadlineNobodyIsKilled) {
  FenceClock<int> fence(Deadline::never());
  EXPECT_THAT(fence.due({{1, true}}, kBegin), IsEmpty());
  EXPECT_THAT(fence.due({{1, true}}, kBegin + 1000h), IsEmpty());
}

TEST_F(Fences, ACallThatOnlyLooksKillsWhoIsSilent) {
  FenceClock<int> fence(Deadline::now());
  EXPECT_THAT(fence.due({{1, true}, {2, false}}, kBegin), ElementsAre(1));
}

}  // namespace
}  // namespace tendon::detail
