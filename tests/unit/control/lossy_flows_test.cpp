// SPDX-License-Identifier: Apache-2.0
// The three flows over paths that lose, double and reorder messages. ZeroMQ does the same when a
// connection breaks, only less often.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "control/controller_core.hpp"
#include "control/worker_core.hpp"
#include "support/control_team.hpp"
#include "support/lossy_network.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ControllerCore;
using detail::WorkerCore;

class LossyFlows : public testing::TestWithParam<std::uint32_t> {};

TEST_P(LossyFlows, EveryStepIsWorkedOnOnceAndInOrder) {
  const auto network = std::make_shared<LossyNetwork>(LossyOptions{
      .seed = GetParam(), .lost_percent = 20, .doubled_percent = 10, .reordered_percent = 20});
  const ParallelLayout layout = layout_of(1, 2, 1);
  Context context = Context::create().value();
  const auto controller = std::make_shared<ControllerCore>(
      layout, ControllerOptions{.idle_heartbeat = 60ms, .step_heartbeat = 60ms}, network,
      detail::open_wake().value(), std::string(detail::kRunIdBytes, 'r'));
  ASSERT_TRUE(succeeds(controller->serve(detail::ContextCore::of(context),
                                         Listener::bind(context, "127.0.0.1:0").value())));
  constexpr std::uint64_t kSteps = 40;
  std::vector<std::thread> workers;
  for (std::uint32_t rank = 0; rank < layout.world_size(); ++rank) {
    workers.emplace_back([&, rank] {
      Context own = Context::create().value();
      const auto worker =
          std::make_shared<WorkerCore>(detail::WorkerPlace{.layout = layout,
                                                           .rank = {rank},
                                                           .at = layout.place_of({rank}).value(),
                                                           .incarnation = rank + 1,
                                                           .host = {},
                                                           .options = {}},
                                       network, detail::open_wake().value());
      ASSERT_TRUE(succeeds(worker->join(
          own, Pipe::connect(own, controller->address(), kPatience).value(), kPatience)));
      for (std::uint64_t id = 1; id <= kSteps; ++id) {
        const auto step = worker->next_step(kPatience);
        ASSERT_TRUE(succeeds(step));
        ASSERT_EQ(step->inputs.schedule_id, id);
        ASSERT_TRUE(succeeds(worker->signal_microbatch(id, kPatience)));
        ASSERT_TRUE(succeeds(
            worker->send_outputs({.schedule_id = id, .payload = step->inputs.payload}, kPatience)));
      }
      EXPECT_TRUE(fails_with(worker->next_step(kPatience), ErrorCode::end_of_stream));
      worker->leave("done");
    });
  }
  ASSERT_TRUE(succeeds(controller->wait_for_workers(kPatience)));
  std::uint64_t collected = 0;
  for (std::uint64_t id = 1; id <= kSteps; ++id) {
    ASSERT_TRUE(succeeds(controller->broadcast(
        {.schedule_id = id, .payload = storage_of(std::to_string(id))}, kPatience)));
    if (id < 3) continue;  // this many are in flight
    const auto outputs = controller->collect(++collected, kPatience);
    ASSERT_TRUE(succeeds(outputs));
    EXPECT_EQ(text_of(outputs->front().payload), std::to_string(collected));
  }
  while (collected < kSteps) {
    ASSERT_TRUE(succeeds(controller->wait_for_microbatch(collected + 1, kPatience)));
    ASSERT_TRUE(succeeds(controller->collect(++collected, kPatience)));
  }
  EXPECT_TRUE(succeeds(controller->stop("over", kPatience)));
  for (std::thread& worker : workers) worker.join();
  EXPECT_GT(network->lost(), 0U);
  EXPECT_GT(controller->stats().resent, 0U);
  EXPECT_GT(controller->stats().doubled, 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, LossyFlows, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace tendon::test
