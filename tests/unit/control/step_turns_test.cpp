// SPDX-License-Identifier: Apache-2.0
// Threads that broadcast steps at the same time: control/step_turns.hpp, and Controller::broadcast.
#include "control/machine/step_turns.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "support/control_team.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

TEST(StepTurns, IdsRiseInTheOrderInWhichCallsBegan) {
  detail::StepTurns turns;
  ASSERT_TRUE(succeeds(turns.join(5)));
  EXPECT_TRUE(fails_with(turns.join(5), ErrorCode::invalid_argument, "not above 5"));
  EXPECT_TRUE(fails_with(turns.join(4), ErrorCode::invalid_argument, "a call which began before"));
  ASSERT_TRUE(succeeds(turns.join(6)));
  EXPECT_EQ(turns.first(), 5U);
  turns.given(5);
  turns.leave(5);
  EXPECT_EQ(turns.first(), 6U);
  turns.leave(6);
  EXPECT_TRUE(fails_with(turns.join(5), ErrorCode::invalid_argument, "an earlier step"));
  ASSERT_TRUE(succeeds(turns.join(6))) << "it was not given out";
}

/// Holds each step until the test lets it continue.
class ThreadsThatBroadcast : public testing::Test {
 protected:
  void SetUp() override {
    workers_.start(0, [this](Worker& worker) {
      while (true) {
        const auto step = worker.next_step(kPatience);
        if (!step.has_value()) return;
        go_on_.wait();
        taken_.push_back(step->inputs.schedule_id);
        const StepOutputs outputs{.schedule_id = step->inputs.schedule_id};
        ASSERT_TRUE(succeeds(worker.send_outputs(outputs, kPatience)));
      }
    });
    ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  }
  std::future<Result<void>> give(std::uint64_t id, TensorDict tensors = {}) {
    return std::async(std::launch::async, [this, id, tensors = std::move(tensors)] {
      return controller_.broadcast({.schedule_id = id, .payload = {}, .tensors = tensors},
                                   kPatience);
    });
  }
  /// Checks with an id that is always too small.
  bool has_begun(std::uint64_t id) {
    return eventually([&] {
      const auto said = controller_.broadcast({.schedule_id = 1}, 0s);
      return !said &&
             said.error().detail.find("not above " + std::to_string(id)) != std::string::npos;
    });
  }
  static TensorDict large() {
    TensorDict tensors;
    tensors.set("prompt", Tensor::empty(DType::u8, {64 << 20}).value());
    return tensors;
  }

  Context context_ = Context::create({.name = "controller"}).value();
  Controller controller_ = Controller::bind(context_, layout_of(1, 1, 1), "127.0.0.1:0").value();
  std::promise<void> may_go_on_;
  std::shared_future<void> go_on_ = may_go_on_.get_future().share();
  std::vector<std::uint64_t> taken_;
  WorkerThreads workers_{controller_};
};

TEST_F(ThreadsThatBroadcast, WaitTheirTurnWithinTheirDeadlines) {
  for (const std::uint64_t id : {1U, 2U})
    ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = id}, kPatience)));
  auto first = give(5, large());  // no room: two are in flight
  ASSERT_TRUE(has_begun(5));
  auto second = give(6);
  ASSERT_TRUE(has_begun(6));
  EXPECT_TRUE(fails_with(controller_.broadcast({.schedule_id = 5}, kPatience),
                         ErrorCode::invalid_argument, "not above 6"));
  EXPECT_TRUE(fails_with(controller_.broadcast({.schedule_id = 7}, kBriefly), ErrorCode::timeout,
                         "step 7 waits for step 5, which another thread gives out"));
  may_go_on_.set_value();
  EXPECT_TRUE(succeeds(first.get()));
  EXPECT_TRUE(succeeds(second.get()));
  for (const std::uint64_t id : {1U, 2U, 5U, 6U})
    EXPECT_TRUE(succeeds(controller_.collect(id, kPatience)));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
  workers_.join();
  EXPECT_EQ(taken_, (std::vector<std::uint64_t>{1, 2, 5, 6}));
}

TEST_F(ThreadsThatBroadcast, DoNotOvertakeOneThatCopies) {
  may_go_on_.set_value();
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 1}, kPatience)));
  ASSERT_TRUE(succeeds(controller_.collect(1, kPatience)));
  std::vector<std::uint64_t> given{1};
  for (std::uint64_t id = 2; id < 12; id += 2) {
    auto copies = give(id, large());
    ASSERT_TRUE(has_begun(id));
    EXPECT_TRUE(succeeds(controller_.broadcast({.schedule_id = id + 1}, kPatience)));
    EXPECT_TRUE(succeeds(copies.get()));
    for (const std::uint64_t each : {id, id + 1}) {
      given.push_back(each);
      ASSERT_TRUE(succeeds(controller_.collect(each, kPatience)));
    }
  }
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
  workers_.join();
  EXPECT_EQ(taken_, given);
}

TEST_F(ThreadsThatBroadcast, AreNoMoreThanThereIsRoomFor) {
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 1}, kPatience)));
  std::vector<std::future<Result<void>>> calls;
  for (std::uint64_t id = 2; id <= 6; ++id) {
    calls.push_back(std::async(std::launch::async, [this, id] {
      return controller_.broadcast({.schedule_id = id, .payload = {}, .tensors = large()},
                                   kBriefly);
    }));
  }
  int given = 0;
  for (auto& call : calls) given += call.get().has_value() ? 1 : 0;
  EXPECT_EQ(given, 1);
  EXPECT_EQ(controller_.status().steps_in_flight.size(), 2U);
  may_go_on_.set_value();
  EXPECT_TRUE(succeeds(controller_.drain(kPatience)));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

}  // namespace
}  // namespace tendon::test
