// SPDX-License-Identifier: Apache-2.0
#include "transport/liveness.hpp"

#include <gtest/gtest.h>

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;

class LivenessTest : public testing::Test {
 protected:
  static constexpr Liveness::Terms kTerms{.lease = 3s};
  const Liveness::Clock::time_point begin_{};
};

TEST_F(LivenessTest, SilenceGrowsWithTicksUntilSomethingCame) {
  Liveness peer(kTerms, begin_);
  peer.tick(begin_ + 500ms);
  EXPECT_EQ(peer.silence(), 500ms);
  EXPECT_FALSE(peer.is_suspect(peer.silence()));
  peer.tick(begin_ + 1s);
  EXPECT_TRUE(peer.is_suspect(peer.silence()));
  EXPECT_FALSE(peer.is_lost(peer.silence()));
  peer.tick(begin_ + 3s);
  EXPECT_TRUE(peer.is_lost(peer.silence()));
  peer.heard();
  EXPECT_EQ(peer.silence(), 0s) << "it lay in the socket while this process did not look";
  peer.tick(begin_ + 4s);
  EXPECT_EQ(peer.silence(), 1s) << "it counts once";
}

TEST_F(LivenessTest, AShortLeaseMakesSuspectSooner) {
  Liveness peer({.lease = 500ms}, begin_);
  peer.tick(begin_ + 500ms);
  EXPECT_TRUE(peer.is_suspect(peer.silence()));
}

TEST_F(LivenessTest, SilenceOfOneThatProgressesManuallyMeansNothing) {
  Liveness peer({.lease = 3s, .expects = false}, begin_);
  peer.tick(begin_ + 1h);
  EXPECT_FALSE(peer.is_suspect(peer.silence()));
  EXPECT_FALSE(peer.is_lost(peer.silence()));
}

TEST_F(LivenessTest, WhoDoesNotReadHearsNothing) {
  Liveness peer(kTerms, begin_);
  peer.tick(begin_ + 10s);
  peer.excuse();
  EXPECT_EQ(peer.silence(), 0s);
}

TEST_F(LivenessTest, ToldSilenceStaysUntilTheNextLook) {
  Liveness peer(kTerms, begin_);
  EXPECT_EQ(peer.last_silence(), 0s);
  peer.tick(begin_ + 2s);
  EXPECT_EQ(peer.last_silence(), 0s);
  EXPECT_EQ(peer.silence(), 2s);
  peer.heard();
  EXPECT_EQ(peer.last_silence(), 2s);
}

TEST_F(LivenessTest, KnowsThatThisProcessWasAway) {
  Liveness peer(kTerms, begin_);
  peer.tick(begin_ + 500ms);
  EXPECT_EQ(peer.own_absence(begin_ + 600ms), 0s);
  EXPECT_EQ(peer.own_absence(begin_ + 2500ms), 2s) << "and has not come back to a tick yet";
  peer.tick(begin_ + 5500ms);
  EXPECT_EQ(peer.own_absence(begin_ + 5600ms), 5s) << "or has just come back";
  Liveness quiet({.lease = 3s, .gives = false}, begin_);
  EXPECT_EQ(quiet.own_absence(begin_ + 1h), 0s) << "nobody expects a sign of it";
}

}  // namespace
}  // namespace tendon::detail
