// SPDX-License-Identifier: Apache-2.0
// Attempts that are made again until they succeed, on as many threads as they need.
#include "fabric/dialler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using detail::Dialler;

TEST(Dials, AreRepeatedUntilOneSucceeds) {
  std::atomic<int> attempts{0};
  Dialler dialler;
  dialler.want("a", "its peer", [&](Deadline) { return ++attempts == 3; });
  EXPECT_TRUE(eventually([&] { return attempts == 3; }));
  dialler.want("a", "its peer", [&](Deadline) { return attempts.fetch_add(100), true; });
  dialler.again("b");  // nobody wants it
  dialler.again("a");
  EXPECT_TRUE(eventually([&] { return attempts >= 4; }));
  EXPECT_LT(attempts, 100) << "what is wanted already stays as it is";
}

TEST(Dials, OneThatHangsHoldsUpNoOther) {
  std::latch all{Dialler::kMostThreads};
  {
    Dialler dialler;
    for (std::size_t n = 0; n < Dialler::kMostThreads; ++n) {
      dialler.want(std::to_string(n), std::to_string(n), [&](Deadline) {
        all.arrive_and_wait();  // each runs while all others do
        return true;
      });
    }
    all.wait();
  }
}

TEST(Dials, OfOnePeerRunOneAfterTheOther) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::atomic<int> ended{0};
  Dialler dialler;
  for (int n = 0; n < 100; ++n) {
    dialler.want(std::to_string(n), "its peer", [&](Deadline) {
      most = std::max(most.load(), ++running);
      std::this_thread::yield();
      --running;
      ++ended;
      return true;
    });
  }
  EXPECT_TRUE(eventually([&] { return ended == 100; }));
  EXPECT_EQ(most, 1);
}

TEST(Dials, RunNoMoreWhenTheyAreDropped) {
  std::atomic<bool> began{false};
  std::atomic<bool> ended{false};
  std::atomic<bool> may_end{false};
  const auto share = std::make_shared<int>(1);
  Dialler dialler;
  dialler.want("x 1", "x", [&, share](Deadline) {
    began = true;
    while (!may_end) std::this_thread::yield();
    ended = true;
    return false;
  });
  std::atomic<int> others{0};
  dialler.want("y", "y", [&](Deadline) { return ++others, true; });
  ASSERT_TRUE(eventually([&] { return began && others == 1; }));
  std::thread ender([&] { may_end = true; });
  dialler.drop_all("x ");
  EXPECT_TRUE(ended) << "it waits for the attempt that runs";
  ender.join();
  EXPECT_TRUE(eventually([&] { return share.use_count() == 1; })) << "and forgets it";
  dialler.again("y");
  EXPECT_TRUE(eventually([&] { return others == 2; }));
}

TEST(Dials, OneThatIsWantedAgainWhileItRunsRunsOnceMore) {
  std::atomic<int> attempts{0};
  std::atomic<bool> may_end{false};
  Dialler dialler;
  dialler.want("a", "its peer", [&](Deadline) {
    ++attempts;
    while (!may_end) std::this_thread::yield();
    return true;
  });
  ASSERT_TRUE(eventually([&] { return attempts == 1; }));
  dialler.again("a");
  may_end = true;
  EXPECT_TRUE(eventually([&] { return attempts == 2; }));
}

TEST(Dials, EndWithTheirDialler) {
  std::atomic<int> attempts{0};
  {
    Dialler dialler;
    for (const char* key : {"a", "b", "c"})
      dialler.want(key, key, [&](Deadline) { return ++attempts, false; });
    ASSERT_TRUE(eventually([&] { return attempts >= 3; }));
  }
  const int before = attempts;
  std::this_thread::yield();
  EXPECT_EQ(attempts, before);
}

}  // namespace
}  // namespace tendon::test
