// SPDX-License-Identifier: Apache-2.0
// No rank falls behind by more steps than may be in flight, whether or not it sends outputs.
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <ostream>
#include <string>
#include <vector>

#include "support/control_team.hpp"

namespace tendon::test {
namespace {

struct SlowRank {
  const char* name;
  std::uint32_t tensor;
  std::uint32_t pipeline;
  std::uint32_t slow;  ///< a rank that sends no outputs
};
void PrintTo(const SlowRank& tested, std::ostream* out) { *out << tested.name; }

class BackPressure : public testing::TestWithParam<SlowRank> {};

INSTANTIATE_TEST_SUITE_P(All, BackPressure,
                         testing::Values(SlowRank{"ASecondTensorRank", 2, 1, 1},
                                         SlowRank{"TheFirstStage", 1, 2, 0},
                                         SlowRank{"AMiddleStage", 1, 3, 1},
                                         SlowRank{"OneOfSix", 3, 2, 4}),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(BackPressure, CountsRanksThatSendNoOutputs) {
  const SlowRank& tested = GetParam();
  Context context = Context::create({.name = "controller"}).value();
  Controller controller =
      Controller::bind(context, layout_of(tested.tensor, tested.pipeline, 1), "127.0.0.1:0")
          .value();
  const std::uint64_t limit = tested.pipeline + 1;
  std::promise<void> may_go_on;
  WorkerThreads workers(controller);
  for (std::uint32_t rank = 0; rank < controller.layout().world_size(); ++rank) {
    if (rank != tested.slow) workers.start(rank);
  }
  workers.start(tested.slow, [&](Worker& worker) {
    ASSERT_FALSE(worker.sends_outputs());
    const auto first = worker.next_step(kPatience);
    ASSERT_TRUE(succeeds(first));
    may_go_on.get_future().wait();
    ASSERT_TRUE(succeeds(worker.send_outputs({.schedule_id = 1}, kPatience)));
    echo_steps(worker);
  });
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  std::uint64_t id = 0;
  for (; id < 1 + limit; ++id) {
    ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = id + 1}, kPatience)));
    ASSERT_TRUE(succeeds(controller.collect(id + 1, kPatience)));
  }
  // Other ranks that send no outputs may be behind for a moment, and are named then too.
  const auto behind = controller.broadcast({.schedule_id = id + 1}, kBriefly);
  EXPECT_TRUE(fails_with(behind, ErrorCode::timeout,
                         "rank " + std::to_string(tested.slow) + " has taken 1"));
  EXPECT_TRUE(fails_with(behind, ErrorCode::timeout,
                         " of the " + std::to_string(id) + " steps of this roster"));
  EXPECT_EQ(controller.status().state, RosterState::running);
  // The broadcast waits for that rank within its deadline, and no longer.
  auto next = std::async(std::launch::async,
                         [&] { return controller.broadcast({.schedule_id = id + 1}, kPatience); });
  may_go_on.set_value();
  EXPECT_TRUE(succeeds(next.get()));
  EXPECT_TRUE(succeeds(controller.collect(id + 1, kPatience)));
  for (id += 2; id < 100; ++id) {
    ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = id}, kPatience)));
    ASSERT_TRUE(succeeds(controller.collect(id, kPatience)));
  }
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

TEST(BackPressureOfAll, NamesEachRankThatIsBehind) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(4, 1, 1), "127.0.0.1:0").value();
  std::promise<void> may_go_on;
  const std::shared_future<void> go_on = may_go_on.get_future().share();
  WorkerThreads workers(controller);
  workers.start_all([&](Worker& worker) {
    if (worker.rank().value % 2 == 1) go_on.wait();
    echo_steps(worker);
  });
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  for (const std::uint64_t id : {1U, 2U}) {
    ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = id}, kPatience)));
    ASSERT_TRUE(succeeds(controller.collect(id, kPatience)));
  }
  EXPECT_TRUE(eventually([&] {
    const auto said = controller.broadcast({.schedule_id = 3}, kBriefly);
    return fails_with(said, ErrorCode::timeout,
                      "rank 1 has taken 0, rank 3 has taken 0 of the 2 steps of this roster");
  }));
  may_go_on.set_value();
  EXPECT_TRUE(succeeds(controller.broadcast({.schedule_id = 3}, kPatience)));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

}  // namespace
}  // namespace tendon::test
