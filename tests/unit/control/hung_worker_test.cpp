// SPDX-License-Identifier: Apache-2.0
// Rosters that a worker holds up: the controller names it, and another takes its place.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

#include "support/control_team.hpp"
#include "support/log_lines.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::Lock;
using detail::Mutex;
using State = WorkerStatus::State;

// A newcomer checks every 2 s whether the roster that it enters is over.
constexpr auto kHangTimeout = 3s;

/// A controller of three workers that starts them itself.
class StartedWorkers : public testing::Test {
 protected:
  using Body = WorkerThreads::Body;

  /// The first worker of each rank runs its body of `first`; later ones echo steps.
  Controller& open(std::vector<Body> first, std::chrono::milliseconds hang_timeout) {
    first_ = std::move(first);
    controller_.emplace(
        Controller::bind(context_, layout_of(3, 1, 1), "127.0.0.1:0",
                         {.start_worker = [this](GlobalRank rank) { return start(rank.value); },
                          .hang_timeout = hang_timeout})
            .value());
    workers_ = std::make_unique<WorkerThreads>(*controller_);
    return *controller_;
  }
  [[nodiscard]] State state_of(std::uint32_t rank) const {
    return controller_->status().workers[rank].state;
  }
  void expect_to_work() {
    EXPECT_TRUE(succeeds(controller_->broadcast({.schedule_id = 100}, kPatience)));
    EXPECT_TRUE(succeeds(controller_->collect(100, kPatience)));
    EXPECT_TRUE(succeeds(controller_->stop("over", kPatience)));
  }
  /// Kills the running worker of this rank first: its Context ends.
  Result<void> start(std::uint32_t rank) {
    started_.push_back(rank);
    {
      const Lock lock(mutex_);
      if (contexts_[rank] != nullptr) (void)contexts_[rank]->close(Deadline::now());
    }
    const Body body = std::exchange(first_[rank], echo_steps);
    workers_->start_in(rank, [this, rank, body](Worker& worker, Context& context) {
      {
        const Lock lock(mutex_);
        contexts_[rank] = &context;
      }
      body(worker);
      const Lock lock(mutex_);
      if (contexts_[rank] == &context) contexts_[rank] = nullptr;
    });
    return {};
  }
  static void take_a_step_and_die(Worker& worker) {
    EXPECT_TRUE(succeeds(worker.next_step(kPatience)));
    worker.leave("a test");
  }

  Context context_ = Context::create({.name = "controller"}).value();
  std::optional<Controller> controller_;
  std::vector<Body> first_;
  Mutex mutex_;
  std::array<Context*, 3> contexts_ TENDON_GUARDED_BY(mutex_){};
  std::vector<std::uint32_t> started_;
  std::unique_ptr<WorkerThreads> workers_;
};

/// The result that reports the closed roster: the first step, or the one after it.
Result<Step> step_after_the_close(Worker& worker) {
  Result<Step> step = worker.next_step(kPatience);
  if (step.has_value()) step = worker.next_step(kPatience);
  return step;
}

TEST_F(StartedWorkers, OneThatNeverSaysThatItIsDoneWithTheRosterIsReplaced) {
  std::promise<void> stuck;
  std::promise<void> over;
  const LogLines lines;
  Controller& controller =
      open({echo_steps, take_a_step_and_die,
            [&](Worker& worker) {
              const Result<Step> step = step_after_the_close(worker);
              ASSERT_TRUE(fails_with(step, ErrorCode::roster_closed));
              stuck.set_value();
              over.get_future().wait();
              EXPECT_FALSE(worker.rebuild(step.error(), kPatience).has_value());
            }},
           kHangTimeout);
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  stuck.get_future().wait();
  EXPECT_TRUE(eventually([&] { return state_of(0) == State::rebuilding; }));
  EXPECT_EQ(state_of(1), State::gone);
  EXPECT_EQ(state_of(2), State::failing);
  started_.clear();
  ASSERT_TRUE(succeeds(controller.rebuild(kPatience)));
  EXPECT_EQ(std::set(started_.begin(), started_.end()), (std::set<std::uint32_t>{1, 2}));
  EXPECT_EQ(started_.size(), 2U);
  EXPECT_TRUE(lines.have("rank 2 ("));
  EXPECT_TRUE(lines.have("did not say that it is done with roster 1 within 3000 ms"));
  over.set_value();
  expect_to_work();
}

TEST_F(StartedWorkers, OneThatDoesNotEnterTheNextRosterIsReplaced) {
  std::promise<void> away;
  std::promise<void> over;
  const LogLines lines;
  Controller& controller =
      open({echo_steps, take_a_step_and_die,
            [&](Worker& worker) {
              const Result<Step> step = step_after_the_close(worker);
              ASSERT_TRUE(fails_with(step, ErrorCode::roster_closed));
              // The worker says that it is done, and is not there when all others are.
              EXPECT_TRUE(fails_with(worker.rebuild(step.error(), kBriefly), ErrorCode::timeout));
              away.set_value();
              over.get_future().wait();
              EXPECT_FALSE(worker.rebuild(step.error(), kPatience).has_value());
            }},
           kHangTimeout);
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  away.get_future().wait();
  ASSERT_TRUE(succeeds(controller.rebuild(kPatience)));
  EXPECT_TRUE(lines.have("did not enter roster 2 within 3000 ms"));
  over.set_value();
  expect_to_work();
}

TEST_F(StartedWorkers, OneThatEndsWhileOthersAreWaitedForIsStartedAgain) {
  std::promise<void> lets_go;
  std::promise<void> has_left;
  Controller& controller = open({[&](Worker& worker) {
                                   Result<Step> step = worker.next_step(kPatience);
                                   if (step.has_value()) step = worker.next_step(kPatience);
                                   ASSERT_TRUE(fails_with(step, ErrorCode::roster_closed));
                                   lets_go.get_future().wait();
                                   worker.leave("a test");
                                   has_left.set_value();
                                 },
                                 take_a_step_and_die, echo_steps},
                                kPatience);
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  EXPECT_TRUE(eventually([&] { return controller.status().state == RosterState::closed; }));
  auto formed = std::async(std::launch::async, [&] { return controller.rebuild(kPatience); });
  // The replacement of rank 1 has joined. Rank 0 is still alive, and has not said that it is done.
  EXPECT_TRUE(eventually([&] { return state_of(1) == State::rebuilding; }));
  lets_go.set_value();
  has_left.get_future().wait();
  ASSERT_TRUE(succeeds(formed.get()));
  expect_to_work();
}

TEST_F(StartedWorkers, AllOfThemMayEndAtOneMoment) {
  const Body ends = [](Worker& worker) {
    (void)worker.next_step(kPatience);  // another worker's end may have ended the roster
    worker.leave("a test");
  };
  Controller& controller = open({ends, ends, ends}, kPatience);
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  EXPECT_TRUE(fails_with(controller.collect(1, kPatience), ErrorCode::worker_lost));
  ASSERT_TRUE(succeeds(controller.rebuild(kPatience)));
  expect_to_work();
}

}  // namespace
}  // namespace tendon::test
