// SPDX-License-Identifier: Apache-2.0
#include "runtime/leadership.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/expect.hpp"

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;

class Leading : public testing::Test {
 protected:
  Leading() { EXPECT_TRUE(test::succeeds(loop_.open())); }
  bool enter(Deadline deadline) {
    return leadership_.enter(leadership_.progress_count(), deadline);
  }

  EventLoop loop_;
  Life life_;
  Leadership leadership_{loop_, life_};
};

TEST_F(Leading, OneLeadsUntilItLeaves) {
  EXPECT_TRUE(enter(Deadline::never()));
  EXPECT_TRUE(leadership_.caller_leads());
  EXPECT_FALSE(enter(Deadline(1ms)));
  leadership_.leave();
  EXPECT_FALSE(leadership_.caller_leads());
  EXPECT_TRUE(enter(Deadline::never()));
}

TEST_F(Leading, NobodyLeadsPastWhatItHasNotLookedAt) {
  const auto seen = leadership_.progress_count();
  leadership_.wake_others();
  EXPECT_FALSE(leadership_.enter(seen, Deadline::never()));
  EXPECT_FALSE(leadership_.caller_leads());
}

TEST_F(Leading, NobodyLeadsOrFollowsInAClosedContext) {
  life_.advance(Life::State::closed);
  EXPECT_FALSE(enter(Deadline::never()));
}

TEST_F(Leading, AFollowerLooksAgainWhenSomethingMovedOrTheLeaderLeaves) {
  for (const bool moves : {true, false}) {
    ASSERT_TRUE(enter(Deadline::never()));
    std::atomic<bool> begun{false};
    std::thread follower([&, seen = leadership_.progress_count()] {
      begun = true;
      EXPECT_FALSE(leadership_.enter(seen, Deadline::never()) && moves);
    });
    while (!begun) std::this_thread::yield();
    if (moves) leadership_.wake_followers();
    leadership_.leave();
    follower.join();
    leadership_.leave();  // it may have arrived so late that it leads
  }
}

TEST_F(Leading, AWakeUpOfTheOthersReachesALeaderInTheEpoll) {
  leadership_.wake_others();
  EXPECT_FALSE(loop_.dispatch(0).rung) << "nobody leads";
  ASSERT_TRUE(enter(Deadline::never()));
  leadership_.wake_followers();
  EXPECT_FALSE(loop_.dispatch(0).rung) << "the leader itself";
  leadership_.wake_others();
  EXPECT_TRUE(loop_.dispatch(0).rung);
}

// The test plays the leader, and the service thread answers.
TEST_F(Leading, ARingThatTheLeaderHeardIsPassedOnToTheServiceThread) {
  ASSERT_TRUE(enter(Deadline::never()));
  leadership_.note_ring_taken();
  leadership_.pass_ring_on(Deadline::never());  // the service thread does not sleep, so this waits
                                                // for nothing
  EXPECT_FALSE(loop_.dispatch(0).rung);

  leadership_.note_ring_taken();
  leadership_.service_enters_epoll();
  std::atomic<bool> heard{false};
  std::thread service([&] {
    heard = loop_.dispatch(-1).rung;
    leadership_.service_leaves_epoll();
  });
  leadership_.pass_ring_on(Deadline::never());
  EXPECT_TRUE(heard);
  service.join();

  // With no thread there, the deadline ends it, and so does leave().
  leadership_.note_ring_taken();
  leadership_.service_enters_epoll();
  leadership_.pass_ring_on(Deadline(1ms));
  EXPECT_TRUE(loop_.dispatch(0).rung);
  leadership_.note_ring_taken();
  leadership_.leave();
  EXPECT_TRUE(loop_.dispatch(0).rung);
}

TEST_F(Leading, TheServiceThreadStandsAsideForAsLongAsOneLeads) {
  ASSERT_TRUE(enter(Deadline::never()));
  std::atomic<bool> aside{true};
  std::thread service([&] {
    leadership_.park(Leadership::kLongestPark, [] { return false; });
    aside = false;
  });
  EXPECT_TRUE(aside);
  leadership_.leave();
  service.join();
  leadership_.park(Leadership::kLongestPark, [] { return true; });
}

}  // namespace
}  // namespace tendon::detail
