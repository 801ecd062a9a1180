// SPDX-License-Identifier: Apache-2.0
// A controller and workers that die, stop and resume, as processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tendon/control/controller.hpp>
#include <vector>

#include "process/peer.hpp"
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
  /// A step works: the sum of 1, 2 and 3 comes back.
  void expect_a_step() {
    ASSERT_TRUE(succeeds(give("reduce")));
    const auto outputs = controller_.collect(id_, kPatience);
    ASSERT_TRUE(succeeds(outputs));
    EXPECT_EQ(as_text(outputs->front().payload.bytes()), "6");
    for (const auto& worker : workers_) {
      EXPECT_EQ(worker->line(), "step " + std::to_string(id_) + " 6");
    }
  }
  void kill_and_replace(const std::vector<std::uint32_t>& victims) {
    for (const std::uint32_t rank : victims) workers_[rank]->kill_and_wait();
    const auto lost = controller_.collect(id_, kPatience);
    ASSERT_TRUE(fails_with(lost, ErrorCode::worker_lost));
    // A dead one is named, not one whose collective failed for that.
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
      // A survivor may have been in more than one attempt.
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
  ASSERT_TRUE(succeeds(give("reduce without 2")));
  ASSERT_EQ(workers_[2]->line(), "sleeps");
  workers_[2]->signal(SIGSTOP);
  for (const std::uint32_t rank : {0U, 1U}) {
    std::string waiting;
    EXPECT_TRUE(eventually([&] {
      const auto status = controller_.ask({rank}, kPatience);
      if (!status.has_value()) return true;
      waiting = status->waiting;
      return waiting.find("waiting for rank") != std::string::npos;
    }));
    EXPECT_NE(waiting.find("in all_reduce"), std::string::npos) << waiting;
    EXPECT_NE(waiting.find("rank 2"), std::string::npos) << waiting;
  }
  EXPECT_TRUE(fails_with(controller_.ask({2}, 100ms), ErrorCode::timeout, "rank 2"));
  // The others have acknowledged it.
  EXPECT_TRUE(fails_with(controller_.cancel_step(id_, 500ms), ErrorCode::timeout, "rank 2 did"));
  EXPECT_EQ(controller_.status().state, RosterState::running);
  workers_[2]->signal(SIGCONT);
  EXPECT_TRUE(succeeds(controller_.ask({2}, kPatience)));
  EXPECT_TRUE(succeeds(controller_.cancel_step(id_, kPatience)));
  kill_and_replace({2});
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
  // Those in the collective do not wait for the member that sleeps.
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
