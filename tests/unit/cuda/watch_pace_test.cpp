// SPDX-License-Identifier: Apache-2.0
#include "cuda/watch_pace.hpp"

#include <gtest/gtest.h>

namespace tendon::v0::detail::cuda {
namespace {

using std::chrono::microseconds;

TEST(WatchPace, IsEagerForAMillisecondAndThenTiresQuickly) {
  WatchPace pace;
  const WatchPace::TimePoint begun{};
  pace.begin(begun);
  for (int us = 0; us < 1000; us += 20)
    EXPECT_EQ(pace.pause(begun + microseconds(us)), microseconds(20));
  auto now = begun + microseconds(1000);
  for (const int us : {40, 80, 160, 320, 640, 1000, 1000}) {
    EXPECT_EQ(pace.pause(now), microseconds(us));
    now += microseconds(us);
  }
  pace.begin(now);
  EXPECT_EQ(pace.pause(now), microseconds(20));
  EXPECT_EQ(pace.pause(now + microseconds(1001)), microseconds(40));
}

}  // namespace
}  // namespace tendon::v0::detail::cuda
