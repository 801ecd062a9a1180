// SPDX-License-Identifier: Apache-2.0
// A controller and workers that die, stop and resume, as processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <tendon/control/controller.hpp>
#include <vector>

#include "process/peer.hpp"
#include "process/stopped_worker.hpp"
#include "support/expect.hpp"
#include "support/storage_of.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kSize = 3;

std::unique_ptr<Peer> start_worker(const std::string& address, std::uint32_t rank) {
  Peer::Options options;
  options.program = "worker_main";
  options.arguments = {"worker", address, std::to_string(kSize), std::to_string(rank)};
  return std::make_unique<Peer>(options);
}

class ControlledProcesses : public testing::Test {
 protected:
  void SetUp() override {
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      workers_.push_back(start_worker(controller_.address(), rank));
    }
    ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
    for (const auto& worker : workers_) ASSERT_EQ(worker->line(), "joined");
  }
  Result<void> give(const std::string& payload) {
    return controller_.broadcast({.schedule_id = ++id_, .payload = storage_of(payload)}, kPatience);
  }
  /// The text of a step's outputs; every worker sends the same.
  std::string collect(std::uint64_t id) {
    const auto outputs = controller_.collect(id, kPatience);
    EXPECT_TRUE(succeeds(outputs));
    if (!outputs) return {};
    std::string said(as_text(outputs->front().payload.bytes()));
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->line(), "step " + std::to_string(id) + " " + said);
    }
    return said;
  }
  std::string do_step(const std::string& payload) {
    EXPECT_TRUE(succeeds(give(payload)));
    return collect(id_);
  }
  /// Expects that a step works and returns the sum of 1, 2 and 3.
  void expect_a_step() { EXPECT_EQ(do_step("reduce"), "6"); }
  void kill_and_replace(const std::vector<std::uint32_t>& victims) {
    for (const std::uint32_t rank : victims) workers_[rank]->kill_and_wait();
    const auto lost = controller_.collect(id_, kPatience);
    ASSERT_TRUE(fails_with(lost, ErrorCode::worker_lost));
    // The error names a dead worker, not a worker whose collective failed because of the death.
    EXPECT_TRUE(std::any_of(victims.begin(), victims.end(), [&](std::uint32_t rank) {
      return lost.error().detail.starts_with("rank " + std::to_string(rank) + " (");
    })) << lost.error().detail;
    for (const std::uint32_t rank : victims) {
      workers_[rank] = start_worker(controller_.address(), rank);
    }
    ASSERT_TRUE(succeeds(controller_.rebuild(kPatience)));
    const std::string roster = "roster " + std::to_string(controller_.status().roster);
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      if (std::find(victims.begin(), victims.end(), rank) != victims.end()) {
        EXPECT_EQ(workers_[rank]->line(), "joined");
        continue;
      }
      EXPECT_TRUE(workers_[rank]->line().starts_with("failed "));
      // A survivor may have taken part in more than one attempt.
      EXPECT_EQ(workers_[rank]->line(), roster);
    }
    expect_a_step();
  }

  Context context_ = Context::create({.name = "controller"}).value();
  Controller controller_ =
      Controller::bind(context_, ParallelLayout::make({.tensor = kSize}).value(), "127.0.0.1:0")
          .value();
  std::vector<std::unique_ptr<Peer>> workers_;
  std::uint64_t id_ = 0;
};

TEST_F(ControlledProcesses, AWorkerKilledInACollectiveIsReplacedAndTheOthersGoOn) {
  expect_a_step();
  ASSERT_TRUE(succeeds(give("reduce without 2")));
  ASSERT_EQ(workers_[2]->line(), "sleeps");
  kill_and_replace({2});
}

TEST_F(ControlledProcesses, SoIsRankZeroWhereTheGroupsMeet) {
  ASSERT_TRUE(succeeds(give("reduce without 0")));
  ASSERT_EQ(workers_[0]->line(), "sleeps");
  kill_and_replace({0});
  ASSERT_TRUE(succeeds(give("reduce without 1")));
  ASSERT_EQ(workers_[1]->line(), "sleeps");
  kill_and_replace({1});
}

TEST_F(ControlledProcesses, SoAreTwoAtOnce) {
  ASSERT_TRUE(succeeds(give("reduce without 1")));
  ASSERT_EQ(workers_[1]->line(), "sleeps");
  kill_and_replace({1, 2});
}

TEST_F(ControlledProcesses, WhileOneIsStoppedInACollectiveTheOthersReplyAndSayWhom) {
  const std::string epoch = do_step("epoch");
  ASSERT_TRUE(succeeds(give("reduce much when told")));
  for (const auto& worker : workers_) ASSERT_EQ(worker->line(), "begun");
  workers_[2]->tell("go");
  EXPECT_TRUE(eventually(
      [&] { return controller_.status().workers[2].waiting.starts_with("in all_reduce #"); }));
  workers_[2]->signal(SIGSTOP);
  const auto stopped_at = std::chrono::steady_clock::now();
  for (const std::uint32_t rank : {0U, 1U}) workers_[rank]->tell("go");
  WorkersOfAStopped others(controller_);
  others.reply_until(stopped_at + 1500ms, id_, id_);
  ASSERT_TRUE(succeeds(give("reduce")));
  others.reply_until(stopped_at + 3s, id_ - 1, id_);
  // It has reported that it waits, and now reports nothing: it alone holds up the step.
  std::vector<WorkerStatus> all;
  EXPECT_TRUE(eventually([&] {
    all = controller_.status().workers;
    return all[2].stalled > 3s;
  }));
  EXPECT_EQ(all[2].state, WorkerStatus::State::owes);
  for (const std::uint32_t rank : {0U, 1U}) EXPECT_EQ(all[rank].stalled, 0s) << rank;
  workers_[2]->signal(SIGCONT);
  EXPECT_TRUE(succeeds(controller_.cancel_step(id_ - 1, kPatience)));
  EXPECT_EQ(collect(id_ - 1), "6");
  EXPECT_EQ(collect(id_), "6");
  EXPECT_EQ(do_step("epoch"), epoch);
  EXPECT_EQ(controller_.status().roster, 1U);
}

TEST_F(ControlledProcesses, TheEndIsInOrder) {
  expect_a_step();
  EXPECT_TRUE(succeeds(controller_.stop("the test is over", kPatience)));
  for (const auto& worker : workers_) {
    EXPECT_EQ(worker->line(), "end end_of_stream");
    EXPECT_EQ(worker->wait(), 0);
  }
}

class KilledController : public testing::Test {
 protected:
  void start(const std::vector<std::string>& payloads) {
    Peer::Options options;
    options.program = "worker_main";
    options.arguments = {"controller", std::to_string(kSize)};
    options.arguments.insert(options.arguments.end(), payloads.begin(), payloads.end());
    controller_ = std::make_unique<Peer>(options);
    const std::string address = controller_->line();
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      workers_.push_back(start_worker(address, rank));
    }
    for (const auto& worker : workers_) ASSERT_EQ(worker->line(), "joined");
    for (std::size_t i = 0; i < payloads.size(); ++i) ASSERT_EQ(controller_->line(), "given out");
  }
  std::unique_ptr<Peer> controller_;
  std::vector<std::unique_ptr<Peer>> workers_;
};

TEST_F(KilledController, ItsWorkersEndWithTheReason) {
  start({"reduce without 1"});
  ASSERT_EQ(workers_[1]->line(), "sleeps");
  controller_->kill_and_wait();
  // The members in the collective do not wait for the member that sleeps.
  for (const std::uint32_t rank : {0U, 2U}) {
    EXPECT_TRUE(workers_[rank]->line().starts_with("failed "));
    const std::string end = workers_[rank]->line();
    EXPECT_TRUE(end.starts_with("end peer_lost the controller is gone: ")) << end;
  }
}

TEST_F(KilledController, WhileItIsStoppedTheStepThatItGaveOutIsFinished) {
  start({"reduce when told"});
  for (const auto& worker : workers_) ASSERT_EQ(worker->line(), "begun");
  controller_->signal(SIGSTOP);
  for (const auto& worker : workers_) worker->tell("go");
  for (const auto& worker : workers_) EXPECT_EQ(worker->line(), "step 1 6");
}

}  // namespace
}  // namespace tendon::test
