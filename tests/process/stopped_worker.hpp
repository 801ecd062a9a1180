// SPDX-License-Identifier: Apache-2.0
// The replies of workers whose collective waits for a stopped worker.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <tendon/control/controller.hpp>
#include <vector>

#include "support/expect.hpp"

namespace tendon::test {

/// The workers of a controller whose worker of the highest rank is stopped in an all_reduce.
class WorkersOfAStopped {
 public:
  explicit WorkersOfAStopped(Controller& controller)
      : controller_(controller), stopped_{controller.layout().world_size() - 1} {}

  /// Checks again and again until `end`: the others send heartbeats unasked and name the worker
  /// that they wait for in step `at_work`, they reply to questions, and they acknowledge the end of
  /// step `cancelled`. A worker acknowledges a step once, so each call needs another step. The last
  /// wait is for the stopped worker, and ends at `end`.
  void reply_until(std::chrono::steady_clock::time_point end, std::uint64_t at_work,
                   std::uint64_t cancelled) {
    using namespace std::chrono_literals;
    const std::string alone = name_of(stopped_) + " did not acknowledge";
    bool acknowledged = false;
    int rounds = 0;
    do {
      // One of them may wait for another, which waits for the stopped one.
      EXPECT_TRUE(eventually([&] { return heartbeats_name_the_stopped(); })) << texts_;
      EXPECT_TRUE(heartbeats_come());
      for (std::uint32_t rank = 0; rank < stopped_.value; ++rank) {
        const auto status = controller_.ask({rank}, kPatience);
        ASSERT_TRUE(succeeds(status));
        EXPECT_TRUE(status->waiting.starts_with("in all_reduce #")) << status->waiting;
        EXPECT_EQ(status->schedule_id, at_work);
      }
      const auto gone = controller_.cancel_step(cancelled, kBriefly);
      ASSERT_TRUE(fails_with(gone, ErrorCode::timeout, name_of(stopped_)));
      acknowledged = gone.error().detail.starts_with(alone);
      ++rounds;
    } while (std::chrono::steady_clock::now() + 300ms < end);
    EXPECT_TRUE(acknowledged) << "by the others, in " << rounds << " rounds";
    EXPECT_TRUE(fails_with(controller_.ask(stopped_, Deadline::at(end)), ErrorCode::timeout,
                           name_of(stopped_)));
    EXPECT_EQ(controller_.status().state, RosterState::running);
  }

 private:
  static std::string name_of(GlobalRank rank) { return "rank " + std::to_string(rank.value); }
  [[nodiscard]] bool heartbeats_name_the_stopped() {
    texts_.clear();
    bool all_wait = true;
    for (const WorkerStatus& status : controller_.status().workers) {
      if (status.rank == stopped_) continue;
      texts_ += status.waiting + "; ";
      all_wait = all_wait && status.waiting.starts_with("in all_reduce #") &&
                 status.waiting.find("waiting for rank ") != std::string::npos;
    }
    return all_wait && texts_.find("waiting for " + name_of(stopped_)) != std::string::npos;
  }
  /// Expects a heartbeat from each of the others, unasked: the age of the last one drops.
  [[nodiscard]] bool heartbeats_come() {
    std::vector<std::chrono::nanoseconds> ages(stopped_.value);
    std::vector<bool> came(stopped_.value);
    return eventually([&] {
      bool all_came = true;
      for (const WorkerStatus& status : controller_.status().workers) {
        if (status.rank == stopped_) continue;
        auto& age = ages[status.rank.value];
        if (status.age < age) came[status.rank.value] = true;
        age = status.age;
        all_came = all_came && came[status.rank.value];
      }
      return all_came;
    });
  }

  Controller& controller_;
  const GlobalRank stopped_;
  std::string texts_;
};

}  // namespace tendon::test
