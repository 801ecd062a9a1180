// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <tendon/core/completion.hpp>

#include "support/expect.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

/// An operation that the test finishes by hand.
class Operation final : public detail::CompletionState<int> {
 public:
  void drive(Deadline) override {}
  void cancel() override {}
  void abandon() override { hand_back(); }
  void schedule(std::function<void()> run) override { run(); }

  std::optional<int> handed_back;

 protected:
  void left_over(Result<int> result) override {
    if (result) handed_back = *result;
  }
};

struct Started {
  std::shared_ptr<Operation> operation = std::make_shared<Operation>();
  std::optional<Completion<int>> completion{Completion<int>(operation)};
};

TEST(Completion, IsPendingUntilFinishedAndGivesItsResultOnce) {
  Started op;
  EXPECT_EQ(op.completion->state(), CompletionStatus::pending);
  EXPECT_TRUE(fails_with(op.completion->wait(0s), ErrorCode::timeout));
  EXPECT_FALSE(op.operation->finish(7));
  EXPECT_EQ(op.completion->state(), CompletionStatus::succeeded);
  EXPECT_EQ(op.completion->wait(0s).value(), 7);
  EXPECT_TRUE(fails_with(op.completion->wait(0s), ErrorCode::already_taken));
}

TEST(Completion, DroppedAfterItsResultCameHandsItBack) {
  Started op;
  (void)op.operation->finish(7);
  op.completion.reset();
  EXPECT_EQ(op.operation->handed_back, 7);
}

// The thread that runs the operation may hold the message already, on its way to finish().
TEST(Completion, DroppedBeforeItsResultComesHandsItBackThen) {
  Started op;
  op.completion.reset();
  EXPECT_FALSE(op.operation->handed_back);
  EXPECT_FALSE(op.operation->finish(7));
  EXPECT_EQ(op.operation->handed_back, 7);
}

TEST(Completion, WhatWasTakenIsNotHandedBack) {
  Started op;
  (void)op.operation->finish(7);
  EXPECT_EQ(op.completion->wait(0s).value(), 7);
  op.completion.reset();
  EXPECT_FALSE(op.operation->handed_back);
}

TEST(Completion, ACallbackGetsTheResultThoughTheCompletionIsDropped) {
  Started op;
  int got = 0;
  op.completion->on_done([&](Result<int> result) { got = result.value(); });
  op.completion.reset();
  auto run = op.operation->finish(7);
  ASSERT_TRUE(run);
  run();
  EXPECT_EQ(got, 7);
  EXPECT_FALSE(op.operation->handed_back);
}

TEST(Completion, SaysWhetherItsMemoryIsStillInUse) {
  Started failed, owning;
  (void)failed.operation->finish(Error{ErrorCode::cancelled, "test", "stopped"});
  (void)owning.operation->finish(Error{ErrorCode::cancelled, "test", "stopped"},
                                 CompletionStatus::failed_owning);
  EXPECT_EQ(failed.completion->state(), CompletionStatus::failed);
  EXPECT_EQ(owning.completion->state(), CompletionStatus::failed_owning);
  EXPECT_TRUE(fails_with(owning.completion->wait(0s), ErrorCode::cancelled));
}

}  // namespace
}  // namespace tendon::test
