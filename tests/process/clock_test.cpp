// SPDX-License-Identifier: Apache-2.0
// The clock of the machine is set while processes exchange messages.
#include <gtest/gtest.h>

#include "process/command.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

Ended run_with_jumps_of(const std::string& clock) {
  return Command({clock}, TENDON_HELPER_DIR "/clock_main").finish();
}

TEST(ClockJumps, OfTheWallClockDisturbNothing) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer has a clock of its own";
  const Ended ended = run_with_jumps_of("wall");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.out, "ok\n");
}

// The kernel lets nobody set the steady clock. Deadlines and leases use it, so the same program
// must notice a jump.
TEST(ClockJumps, OfTheSteadyClockAreSeen) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer has a clock of its own";
  const Ended ended = run_with_jumps_of("steady");
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_TRUE(ended.out.starts_with("error ")) << ended.out;
}

}  // namespace
}  // namespace tendon::test
