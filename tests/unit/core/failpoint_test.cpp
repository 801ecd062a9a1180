// SPDX-License-Identifier: Apache-2.0
#include "core/failpoint.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/child.hpp"

namespace tendon::v0::detail {
namespace {

#ifdef TENDON_FAILPOINTS
using test::exited_with;
using test::killed_by;
using test::run_in_child;

// The list is read at the first passage, so every case runs in a process of its own.
template <class Body>
int armed(const char* list, Body body) {
  return run_in_child([&] {
    setenv("TENDON_FAILPOINTS", list, 1);
    return body();
  });
}

TEST(Failpoint, IsBuilt) { EXPECT_TRUE(failpoints_built()); }

TEST(Failpoint, UnarmedDoesNothing) {
  EXPECT_TRUE(exited_with(run_in_child([] {
                            unsetenv("TENDON_FAILPOINTS");
                            return TENDON_FAILPOINT("a") ? 1 : 0;
                          }),
                          0));
  EXPECT_TRUE(exited_with(armed("", [] { return TENDON_FAILPOINT("a") ? 1 : 0; }), 0));
  EXPECT_TRUE(exited_with(armed("other=kill", [] { return TENDON_FAILPOINT("a") ? 1 : 0; }), 0));
}

TEST(Failpoint, ErrorHitsOnceAtItsPassage) {
  const int status = armed("a=error,b=error@3", [] {
    if (!TENDON_FAILPOINT("a") || TENDON_FAILPOINT("a")) return 1;
    if (TENDON_FAILPOINT("b") || TENDON_FAILPOINT("b")) return 2;
    if (!TENDON_FAILPOINT("b") || TENDON_FAILPOINT("b")) return 3;
    return 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(Failpoint, TwoEntriesOfOneNameCountTheSamePassages) {
  const int status = armed("a=error@1,a=error@2", [] {
    if (!TENDON_FAILPOINT("a")) return 1;
    if (!TENDON_FAILPOINT("a")) return 2;
    return TENDON_FAILPOINT("a") ? 3 : 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(Failpoint, KillKillsAtItsPassage) {
  EXPECT_TRUE(killed_by(armed("a=kill", [] { return TENDON_FAILPOINT("a") ? 1 : 0; }), SIGKILL));
  EXPECT_TRUE(exited_with(armed("a=kill@2", [] { return TENDON_FAILPOINT("a") ? 1 : 7; }), 7));
}

TEST(Failpoint, StopStopsAndThenGoesOn) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("TENDON_FAILPOINTS", "a=stop", 1);
    _exit(TENDON_FAILPOINT("a") ? 1 : 5);
  }
  ASSERT_GT(child, 0);
  const int stopped = test::wait_for(child, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(stopped)) << stopped;
  kill(child, SIGCONT);
  EXPECT_TRUE(exited_with(test::wait_for(child), 5));
}

TEST(Failpoint, UnreadableListEndsTheProcess) {
  for (const char* list : {"a", "a=", "a=explode", "a=kill@", "a=kill@0", "a=kill@-1", "a=error@2x",
                           "=error", ",a=error", "a=error,,b=error"}) {
    EXPECT_TRUE(killed_by(armed(list, [] { return TENDON_FAILPOINT("none") ? 1 : 0; }), SIGABRT))
        << list;
  }
}
#else
TEST(Failpoint, IsNotBuilt) {
  EXPECT_FALSE(failpoints_built());
  EXPECT_FALSE(TENDON_FAILPOINT("anything"));
}
#endif

}  // namespace
}  // namespace tendon::v0::detail
