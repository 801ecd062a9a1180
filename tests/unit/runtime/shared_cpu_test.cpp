// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_cpu.hpp"

#include <gtest/gtest.h>

namespace tendon::v0::detail {
namespace {

using namespace std::chrono_literals;

constexpr auto kPeerRan = 5us;
constexpr auto kNobodyRan = 300ns;

/// Waits that end in a yield to the peer, until one is to sleep at once; -1: none of `most`.
int waits_before_parting(SharedCpu& cpu, int most = 10'000) {
  for (int waits = 0; waits <= most; ++waits) {
    if (cpu.should_part()) return waits;
    cpu.met(kPeerRan);
  }
  return -1;
}

TEST(SharedCpu, APeerThatRunsOnlyInYieldsIsPartedFromAfterEight) {
  SharedCpu cpu;
  EXPECT_EQ(waits_before_parting(cpu), 8);
}

TEST(SharedCpu, AnswersWithoutAYieldOrAfterOneThatNobodyTookPartNothing) {
  for (const auto yielded : {std::chrono::nanoseconds(0), std::chrono::nanoseconds(kNobodyRan)}) {
    SharedCpu cpu;
    for (int i = 0; i < 1000; ++i) {
      EXPECT_FALSE(cpu.should_part());
      cpu.met(yielded);
    }
  }
}

TEST(SharedCpu, OneAnswerWithoutAYieldAmongEightIsEnoughToStay) {
  SharedCpu cpu;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(cpu.should_part());
    cpu.met(i % 8 == 7 ? 0us : kPeerRan);
  }
}

// Where every other CPU is busy a sleep parts nothing, and costs more than the yields.
TEST(SharedCpu, InVainIsTriedEverMoreSeldom) {
  SharedCpu cpu;
  for (int expected = 8; expected < 1024; expected *= 2)
    EXPECT_EQ(waits_before_parting(cpu), expected);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(waits_before_parting(cpu), 1024);
}

TEST(SharedCpu, OnceApartItIsAsQuickAsAtFirst) {
  SharedCpu cpu;
  for (int i = 0; i < 5; ++i) waits_before_parting(cpu);
  EXPECT_FALSE(cpu.should_part());
  cpu.met(0us);
  EXPECT_EQ(waits_before_parting(cpu), 8);
}

}  // namespace
}  // namespace tendon::v0::detail
