// SPDX-License-Identifier: Apache-2.0
// Tensors beside a step: those that cannot be sent, those that workers keep, and the messages
// meanwhile.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/tensor/packed.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "support/batches.hpp"
#include "support/control_team.hpp"
#include "support/storage_on_gpu.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kTensorBytes = std::uint64_t{1} << 20;

struct Caps {
  const char* name;
  ContextOptions controller;
  ContextOptions worker;
};
void PrintTo(const Caps& tested, std::ostream* out) { *out << tested.name; }

ContextOptions with_caps(std::uint64_t link_cap, std::uint64_t publish, Transport transport) {
  return {.name = "one of them",
          .transport = transport,
          .link_cap_bytes = link_cap * kTensorBytes,
          .publish_bytes = publish * kTensorBytes};
}

/// A controller and two workers that all send outputs; each in a Context of its own.
class TensorsBesideAStep : public testing::TestWithParam<Caps> {
 protected:
  void start(const WorkerThreads::Body& body) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      threads_.emplace_back([this, rank, body] {
        ContextOptions options = GetParam().worker;
        Context context = Context::create(std::move(options)).value();
        auto worker = Worker::connect(context, controller_.address(), controller_.layout(), {rank},
                                      kPatience);
        ASSERT_TRUE(succeeds(worker));
        body(*worker);
      });
    }
    ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  }
  /// Stops the workers, which then look at their tensors.
  void end() {
    EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
    for (std::thread& thread : std::exchange(threads_, {})) thread.join();
  }
  void TearDown() override {
    if (!threads_.empty()) end();
  }
  Result<void> give(std::uint64_t id, std::uint64_t size_bytes) {
    return controller_.broadcast(
        {.schedule_id = id, .payload = {}, .tensors = patterned(id, size_bytes)}, kPatience);
  }

  Context context_ = Context::create(ContextOptions(GetParam().controller)).value();
  Controller controller_ = Controller::bind(context_, layout_of(1, 1, 2), "127.0.0.1:0").value();
  std::vector<std::thread> threads_;
};

INSTANTIATE_TEST_SUITE_P(
    All, TensorsBesideAStep,
    testing::Values(Caps{"CapOfTheController", with_caps(8, 64, Transport::automatic),
                         with_caps(256, 64, Transport::automatic)},
                    Caps{"CapOfAWorker", with_caps(256, 64, Transport::automatic),
                         with_caps(8, 64, Transport::automatic)},
                    Caps{"SmallPublishPool", with_caps(8, 1, Transport::automatic),
                         with_caps(8, 1, Transport::automatic)},
                    Caps{"OverTcp", with_caps(8, 64, Transport::tcp),
                         with_caps(8, 64, Transport::tcp)}),
    [](const auto& tested) { return tested.param.name; });

TEST_P(TensorsBesideAStep, AreRefusedAboveTheCapOfALinkAndTheRosterGoesOn) {
  start(echo_steps);
  ASSERT_TRUE(succeeds(give(1, kTensorBytes)));
  EXPECT_TRUE(succeeds(controller_.collect(1, kPatience)));
  EXPECT_TRUE(
      fails_with(give(2, 9 * kTensorBytes), ErrorCode::message_too_large, "link_cap_bytes"));
  EXPECT_TRUE(controller_.status().steps_in_flight.empty());
  ASSERT_TRUE(succeeds(give(2, kTensorBytes))) << "no worker has had it";
  EXPECT_TRUE(succeeds(controller_.collect(2, kPatience)));
}

TEST_P(TensorsBesideAStep, AreRefusedInMemoryOfAGpuAndTheRosterGoesOn) {
  start(echo_steps);
  TensorDict tree;
  tree.set("x", Tensor::view(storage_on_gpu(64), 0, DType::u8, {64}).value());
  const TensorDict packed = make_packed(tree.schema(), Layout::aligned, storage_on_gpu(64)).value();
  for (const TensorDict& tensors : {tree, packed}) {
    EXPECT_TRUE(fails_with(
        controller_.broadcast({.schedule_id = 1, .payload = {}, .tensors = tensors}, kPatience),
        ErrorCode::unsupported_device, "'x' is on cuda:0"));
  }
  EXPECT_TRUE(controller_.status().steps_in_flight.empty());
  ASSERT_TRUE(succeeds(give(1, kTensorBytes))) << "no worker has had it";
  EXPECT_TRUE(succeeds(controller_.collect(1, kPatience)));
}

TEST_P(TensorsBesideAStep, ComeToWorkersThatKeepAllOfThem) {
  std::vector<TensorDict> kept[2];
  start([&](Worker& worker) {
    while (true) {
      auto step = worker.next_step(kPatience);
      if (!step.has_value()) break;
      kept[worker.rank().value].push_back(step->inputs.tensors);
      ASSERT_TRUE(
          succeeds(worker.send_outputs({.schedule_id = step->inputs.schedule_id}, kPatience)));
    }
    std::uint64_t id = 0;
    for (const TensorDict& each : kept[worker.rank().value])
      EXPECT_TRUE(is_patterned(each, ++id, kTensorBytes));
    EXPECT_EQ(id, 100U);
  });
  for (std::uint64_t id = 1; id <= 100 && !HasFailure(); ++id) {
    EXPECT_TRUE(succeeds(give(id, kTensorBytes))) << id;
    if (HasFailure()) break;
    EXPECT_TRUE(succeeds(controller_.collect(id, kPatience))) << id;
  }
  end();  // the workers hold `kept`
}

/// One worker, and a pipe beside the controller's whose loans keep all slots of the link.
class TensorsThatWait : public testing::Test {
 protected:
  void SetUp() override {
    // The publish pool has no slot for them either.
    worker_ = std::thread([this] {
      Context context = Context::create(with_caps(8, 1, Transport::shm)).value();
      const Pipe beside = Pipe::connect(context, listener_.address(), kPatience).value();
      auto worker =
          Worker::connect(context, controller_.address(), controller_.layout(), {0}, kPatience);
      ASSERT_TRUE(succeeds(worker));
      Step step;
      while (true) {
        auto next = worker->next_step(kPatience);
        if (!next.has_value()) break;
        step = *std::move(next);
        EXPECT_TRUE(is_patterned(step.inputs.tensors, step.inputs.schedule_id, kTensorBytes));
        const StepOutputs outputs{.schedule_id = step.inputs.schedule_id};
        ASSERT_TRUE(succeeds(worker->send_outputs(outputs, kPatience)));
      }
    });
    ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
    pipe_.emplace(listener_.accept(kPatience).value());
    while (true) {
      auto loan = pipe_->loan(bytes_schema(kTensorBytes), Deadline::now());
      if (!loan.has_value()) break;
      loans_.push_back(*std::move(loan));
    }
    ASSERT_GT(loans_.size(), 0U);
    ASSERT_TRUE(succeeds(controller_.broadcast(
        {.schedule_id = 1, .payload = {}, .tensors = patterned(1, kTensorBytes)}, kPatience)));
  }
  void TearDown() override { worker_.join(); }

  Context context_ = Context::create(with_caps(8, 1, Transport::shm)).value();
  Controller controller_ = Controller::bind(context_, layout_of(1, 1, 1), "127.0.0.1:0").value();
  Listener listener_ = Listener::bind(context_, "127.0.0.1:0").value();
  std::thread worker_;
  std::optional<Pipe> pipe_;
  std::vector<Loan> loans_;
};

TEST_F(TensorsThatWait, KeepNoWordsWaiting) {
  EXPECT_TRUE(succeeds(controller_.ask({0}, kPatience)));
  EXPECT_TRUE(succeeds(controller_.cancel_step(1, kPatience)));
  EXPECT_TRUE(fails_with(controller_.collect(1, kBriefly), ErrorCode::timeout, "rank 0"));
  loans_.clear();
  EXPECT_TRUE(succeeds(controller_.collect(1, kPatience)));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(TensorsThatWait, ComeBeforeTheEndThatWasSaidMeanwhile) {
  EXPECT_TRUE(fails_with(controller_.stop("over", kBriefly), ErrorCode::timeout, "rank 0"));
  loans_.clear();
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

}  // namespace
}  // namespace tendon::test
