// SPDX-License-Identifier: Apache-2.0
// Which worker is reported to hold up the steps of all, when one of them hangs.
#include "control/machine/standing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <vector>

#include "support/control_team.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::SeatState;
using detail::Standing;
using detail::StepLedger;
using detail::WorkerSeat;
using detail::WorkerSeats;
using State = WorkerStatus::State;

/// Three workers in one tensor group, each at work on the only step for 20 s.
class ThreeAtWork : public testing::Test {
 protected:
  ThreeAtWork() {
    steps_.begin(1, 1);
    for (std::uint32_t rank = 0; rank < seats_.size(); ++rank) {
      WorkerSeat& seat = seats_.at({rank});
      seat.state = SeatState::ready;
      seat.taken_inputs = 1;
      seat.heard.schedule_id = 1;
      seat.heard_at = now_;
      seat.begin_work(now_ - 20s);
    }
  }
  void waits_for(std::uint32_t rank, std::vector<GlobalRank> awaited) {
    seats_.at({rank}).heard.waiting = "in all_reduce #1";
    seats_.at({rank}).heard.waiting_for = std::move(awaited);
    seats_.at({rank}).busy_since = now_;
  }
  [[nodiscard]] std::vector<std::chrono::nanoseconds> stalled() const {
    std::vector<std::chrono::nanoseconds> all;
    for (const WorkerStatus& status : statuses()) all.push_back(status.stalled);
    return all;
  }
  [[nodiscard]] std::vector<WorkerStatus> statuses() const {
    return Standing(seats_, steps_, 1, 1s, now_).statuses();
  }
  using Seconds = std::vector<std::chrono::nanoseconds>;

  const Standing::Clock::time_point now_{1h};
  WorkerSeats seats_{3};
  StepLedger steps_{layout_of(3, 1, 1)};
};

TEST_F(ThreeAtWork, TheOneForWhichTheOthersWaitIsStalled) {
  waits_for(0, {{1}});
  waits_for(2, {{1}});
  EXPECT_EQ(stalled(), (Seconds{0s, 20s, 0s}));
  EXPECT_EQ(statuses()[2].state, State::owes);
}

TEST_F(ThreeAtWork, WhoHasGivenItsOutputsIsNotEvenIfItsHeartbeatIsOlder) {
  ASSERT_TRUE(steps_.add({.schedule_id = 1, .rank = {0}}));
  waits_for(2, {{1}});
  EXPECT_EQ(stalled(), (Seconds{0s, 20s, 0s}));
  EXPECT_EQ(statuses()[0].state, State::running);
}

TEST_F(ThreeAtWork, WhoHasNotTakenAStepThatWasSentIs) {
  seats_.at({1}).taken_inputs = 0;
  seats_.at({1}).heard.schedule_id = 0;
  waits_for(0, {{1}});
  waits_for(2, {{1}});
  EXPECT_EQ(stalled(), (Seconds{0s, 20s, 0s}));
}

TEST_F(ThreeAtWork, WhoIsDoneWithoutItsPartInACollectiveIs) {
  seats_.at({2}).heard.schedule_id = 0;
  waits_for(0, {{1}, {2}});
  waits_for(1, {{2}});
  EXPECT_EQ(stalled(), (Seconds{0s, 0s, 20s}));
  EXPECT_EQ(statuses()[2].state, State::running);
}

TEST_F(ThreeAtWork, WhoWasStoppedWhileItWaitedIs) {
  for (const std::uint32_t rank : {0U, 1U, 2U}) waits_for(rank, {{(rank + 1) % 3}});
  EXPECT_EQ(stalled(), (Seconds{0s, 0s, 0s}));
  seats_.at({1}).heard_at = seats_.at({1}).busy_since = now_ - 15s;
  EXPECT_EQ(stalled(), (Seconds{0s, 15s, 0s}));
}

TEST_F(ThreeAtWork, NobodyIsWithoutAStep) {
  ASSERT_TRUE(steps_.add({.schedule_id = 1, .rank = {0}}));
  for (const std::uint32_t rank : {1U, 2U}) seats_.at({rank}).heard.schedule_id = 0;
  EXPECT_EQ(stalled(), (Seconds{0s, 0s, 0s}));
}

TEST_F(ThreeAtWork, PlacesSayHowFarTheirWorkersAre) {
  seats_.at({0}).state = SeatState::failing;
  seats_.at({1}).state = SeatState::waiting;
  seats_.at({2}).heard.identity.name = "the last";
  seats_.vacate({2});
  const auto all = statuses();
  EXPECT_EQ(all[0].state, State::failing);
  EXPECT_EQ(all[1].state, State::rebuilding);
  EXPECT_EQ(all[2].state, State::gone);
  EXPECT_EQ(all[2].identity.name, "the last");
  EXPECT_EQ(to_string(all[2].state), "gone");
}

/// Workers do `step`; one of them hangs before it. Expects that only this one is reported as
/// stalled.
void expect_to_be_named(const ParallelLayout& layout, std::uint32_t hanging,
                        const std::function<void(Worker&)>& step) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller =
      Controller::bind(context, layout, "127.0.0.1:0", {.step_heartbeat = 10ms}).value();
  std::promise<void> over;
  const std::shared_future<void> end = over.get_future().share();
  WorkerThreads workers(controller);
  for (std::uint32_t rank = 0; rank < layout.world_size(); ++rank) {
    workers.start(rank, [&, rank, end](Worker& worker) {
      ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
      if (rank == hanging) end.wait();
      step(worker);
      EXPECT_TRUE(succeeds(worker.send_outputs({.schedule_id = 1}, kPatience)));
      EXPECT_FALSE(worker.next_step(kPatience).has_value());
    });
  }
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  std::vector<WorkerStatus> all;
  EXPECT_TRUE(eventually([&] {
    all = controller.status().workers;
    return all[hanging].stalled > 500ms && std::ranges::all_of(all, [&](const auto& each) {
             return each.rank.value == hanging || each.stalled == 0ns;
           });
  }));
  EXPECT_EQ(all[hanging].state, State::owes);
  EXPECT_EQ(all[hanging].waiting, "");
  over.set_value();
  EXPECT_TRUE(succeeds(controller.collect(1, kPatience)));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

void meet_in_tensor_group(Worker& worker) {
  EXPECT_TRUE(succeeds(worker.groups().tensor->barrier(kPatience)));
}

TEST(WorkerThatHangs, IsNamedInATensorGroup) {
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    expect_to_be_named(layout_of(3, 1, 1), rank, meet_in_tensor_group);
}

TEST(WorkerThatHangs, IsNamedWhereTheStageBeforeIsDone) {
  expect_to_be_named(layout_of(2, 2, 1), 3, meet_in_tensor_group);
}

TEST(WorkerThatHangs, IsNamedWhereTheNextStageWaitsForItsMessage) {
  expect_to_be_named(layout_of(1, 2, 1), 0, [](Worker& worker) {
    const Tensor number = Tensor::of<float>({1}, {1});
    const auto stages = worker.groups().pipeline;
    if (worker.rank().value == 0)
      EXPECT_TRUE(succeeds(stages->send(number, {.rank = GroupRank{1}}, kPatience)));
    else
      EXPECT_TRUE(succeeds(stages->recv(number, {.rank = GroupRank{0}}, kPatience)));
  });
}

}  // namespace
}  // namespace tendon::test
