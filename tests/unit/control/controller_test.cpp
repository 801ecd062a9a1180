// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "runtime/context_core.hpp"
#include "support/control_team.hpp"
#include "support/log_lines.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

struct Sizes {
  std::uint32_t tensor;
  std::uint32_t pipeline;
  std::uint32_t kv;
};

class ControllerLayouts : public testing::TestWithParam<Sizes> {};

TEST_P(ControllerLayouts, StepsGoToAllWorkersAndOutputsComeBackInAnyOrder) {
  const auto [tensor, pipeline, kv] = GetParam();
  const ParallelLayout layout = layout_of(tensor, pipeline, kv);
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout, "127.0.0.1:0").value();
  WorkerThreads workers(controller);
  std::atomic<std::uint32_t> groups_fit{0};
  workers.start_all([&](Worker& worker) {
    const WorkerGroups groups = worker.groups();
    if (groups.world->size() == layout.world_size() && groups.tensor->size() == tensor &&
        groups.kv->size() == kv && groups.pipeline->size() == pipeline &&
        groups.pipeline->rank().value == worker.place().pipeline) {
      ++groups_fit;
    }
    echo_steps(worker);
  });
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  EXPECT_EQ(controller.status().state, RosterState::running);
  EXPECT_EQ(controller.status().roster, 1U);
  EXPECT_EQ(controller.status().workers.size(), layout.world_size());

  for (std::uint64_t id = 1; id <= 20; id += 2) {
    // Two steps in flight; the later one is collected first.
    ASSERT_TRUE(succeeds(controller.broadcast(
        {.schedule_id = id, .payload = storage_of("step " + std::to_string(id))}, kPatience)));
    ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = id + 1}, kPatience)));
    ASSERT_TRUE(succeeds(controller.wait_for_microbatch(id, kPatience)));
    ASSERT_TRUE(succeeds(controller.collect(id + 1, kPatience)));
    const auto outputs = controller.collect(id, kPatience);
    ASSERT_TRUE(succeeds(outputs));
    ASSERT_EQ(outputs->size(), kv);
    for (std::uint32_t i = 0; i < kv; ++i) {
      const std::uint32_t rank = tensor * (i + kv * (pipeline - 1));
      EXPECT_EQ((*outputs)[i].rank.value, rank);
      EXPECT_EQ(text_of((*outputs)[i].payload),
                "rank " + std::to_string(rank) + ": step " + std::to_string(id));
    }
  }
  EXPECT_EQ(controller.stats().refused, 0U);
  EXPECT_TRUE(succeeds(controller.stop("the test is over", kPatience)));
  workers.join();
  EXPECT_EQ(groups_fit, layout.world_size());
}

INSTANTIATE_TEST_SUITE_P(All, ControllerLayouts,
                         testing::Values(Sizes{1, 1, 1}, Sizes{2, 1, 1}, Sizes{1, 2, 1},
                                         Sizes{1, 1, 2}, Sizes{2, 2, 1}, Sizes{1, 2, 2}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.tensor) + "x" +
                                  std::to_string(tested.param.pipeline) + "x" +
                                  std::to_string(tested.param.kv);
                         });

class OneWorker : public testing::Test {
 protected:
  Context context_ = Context::create({.name = "controller"}).value();
  Controller controller_ =
      Controller::bind(context_, layout_of(1, 1, 1), "127.0.0.1:0", {.payload_version = 7}).value();

  Result<Worker> connect(Context& context, const ParallelLayout& layout, std::uint32_t rank,
                         std::uint64_t payload_version = 7) {
    return Worker::connect(context, controller_.address(), layout, {rank}, kPatience,
                           {.payload_version = payload_version});
  }
};

TEST_F(OneWorker, AWorkerThatDoesNotFitIsRefusedInTheControllersWords) {
  Context context = Context::create({.name = "misfit"}).value();
  const LogLines lines;
  EXPECT_TRUE(fails_with(connect(context, layout_of(2, 1, 1), 1), ErrorCode::invalid_argument,
                         "the worker's layout is tensor 2"));
  EXPECT_TRUE(fails_with(connect(context, layout_of(1, 1, 1), 0, 8), ErrorCode::invalid_argument,
                         "version 8"));
  EXPECT_TRUE(
      fails_with(connect(context, layout_of(1, 1, 1), 3), ErrorCode::invalid_argument, "3"));
  EXPECT_TRUE(lines.have("control.join refused misfit ("));
}

TEST_F(OneWorker, ARankThatIsTakenIsRefused) {
  WorkerThreads workers(controller_);
  workers.start(0, echo_steps, {.payload_version = 7});
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  Context context = Context::create().value();
  EXPECT_TRUE(fails_with(connect(context, layout_of(1, 1, 1), 0), ErrorCode::invalid_argument,
                         "is there already"));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(OneWorker, WaitingForWorkersNamesThoseThatAreMissing) {
  EXPECT_TRUE(fails_with(controller_.wait_for_workers(kBriefly), ErrorCode::timeout,
                         "rank 0 of 1 did not come"));
  EXPECT_TRUE(
      fails_with(controller_.broadcast({.schedule_id = 1}, kBriefly), ErrorCode::roster_closed));
}

TEST_F(OneWorker, WhatIsWrongWithAStepIsSaidBeforeItIsSent) {
  WorkerThreads workers(controller_);
  workers.start(
      0,
      [](Worker& worker) {
        ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
        const auto bytes = [](std::uint64_t count) { return Storage::allocate(count).value(); };
        EXPECT_TRUE(fails_with(
            worker.send_outputs({.schedule_id = 5, .payload = bytes(kMaxStepPayloadBytes + 1)}, 1s),
            ErrorCode::message_too_large));
        EXPECT_TRUE(succeeds(worker.send_outputs(
            {.schedule_id = 5, .payload = bytes(kMaxStepPayloadBytes)}, kPatience)));
        echo_steps(worker);
      },
      {.payload_version = 7});
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  const auto bytes = [](std::uint64_t count) { return Storage::allocate(count).value(); };
  EXPECT_TRUE(succeeds(controller_.broadcast(
      {.schedule_id = 5, .payload = bytes(kMaxStepPayloadBytes)}, kPatience)));
  EXPECT_TRUE(fails_with(
      controller_.broadcast({.schedule_id = 6, .payload = bytes(kMaxStepPayloadBytes + 1)}, 1s),
      ErrorCode::message_too_large));
  EXPECT_TRUE(fails_with(controller_.broadcast({.schedule_id = 5}, 1s), ErrorCode::invalid_argument,
                         "not above 5"));
  EXPECT_TRUE(fails_with(controller_.collect(6, 1s), ErrorCode::invalid_argument, "step 6"));
  EXPECT_TRUE(succeeds(controller_.collect(5, kPatience)));
  EXPECT_TRUE(fails_with(controller_.collect(5, 1s), ErrorCode::invalid_argument));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(OneWorker, StepsInFlightAreTheBackPressure) {
  std::promise<void> go;
  WorkerThreads workers(controller_);
  workers.start(0,
                [&](Worker& worker) {
                  go.get_future().wait();
                  echo_steps(worker);
                },
                {.payload_version = 7});
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 1}, kPatience)));
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(fails_with(controller_.broadcast({.schedule_id = 3}, kBriefly), ErrorCode::timeout,
                         "the oldest is 1, which waits for rank 0"));
  EXPECT_TRUE(fails_with(controller_.collect(1, kBriefly), ErrorCode::timeout, "rank 0"));
  EXPECT_TRUE(fails_with(controller_.drain(kBriefly), ErrorCode::timeout, "step"));
  EXPECT_TRUE(fails_with(controller_.broadcast({.schedule_id = 3}, kBriefly),
                         ErrorCode::roster_closed, "drains"));
  go.set_value();
  EXPECT_TRUE(succeeds(controller_.drain(kPatience)));
  EXPECT_TRUE(succeeds(controller_.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(OneWorker, AStepAndItsOutputsThatAreGivenBackComeAgain) {
  WorkerThreads workers(controller_);
  workers.start(0,
                [](Worker& worker) {
                  for (std::uint64_t id = 1; id <= 2; ++id) {
                    auto taken = worker.next_step(kPatience);
                    ASSERT_TRUE(succeeds(taken));
                    worker.give_back(*std::move(taken));
                    const auto step = worker.next_step(kPatience);
                    ASSERT_TRUE(succeeds(step));
                    EXPECT_EQ(step->inputs.schedule_id, id);
                    EXPECT_EQ(text_of(step->inputs.payload), "prompt");
                    ASSERT_TRUE(succeeds(worker.send_outputs(
                        {.schedule_id = id, .payload = storage_of("answer")}, kPatience)));
                  }
                  EXPECT_TRUE(fails_with(worker.next_step(kPatience), ErrorCode::end_of_stream));
                },
                {.payload_version = 7});
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  for (std::uint64_t id = 1; id <= 2; ++id) {
    ASSERT_TRUE(succeeds(
        controller_.broadcast({.schedule_id = id, .payload = storage_of("prompt")}, kPatience)));
    controller_.give_back(controller_.collect(id, kPatience).value());
    EXPECT_EQ(text_of(controller_.collect(id, kPatience).value().front().payload), "answer");
    EXPECT_TRUE(fails_with(controller_.collect(id, kPatience), ErrorCode::invalid_argument));
  }
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(OneWorker, TensorsComeWithTheirStep) {
  WorkerThreads workers(controller_);
  workers.start(0,
                [](Worker& worker) {
                  for (int i = 0; i < 3; ++i) {
                    const auto step = worker.next_step(kPatience);
                    ASSERT_TRUE(succeeds(step));
                    const auto values = step->inputs.tensors["prompt"].span<const float>();
                    ASSERT_TRUE(succeeds(worker.send_outputs(
                        {.schedule_id = step->inputs.schedule_id,
                         .payload = storage_of(std::to_string(static_cast<int>(values[1])))},
                        kPatience)));
                  }
                  EXPECT_TRUE(fails_with(worker.next_step(kPatience), ErrorCode::end_of_stream));
                },
                {.payload_version = 7});
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  for (std::uint64_t id = 1; id <= 3; ++id) {
    TensorDict tensors;
    tensors.set("prompt", Tensor::of<float>({2}, {0, static_cast<float>(id)}));
    ASSERT_TRUE(succeeds(
        controller_.broadcast({.schedule_id = id, .payload = {}, .tensors = tensors}, kPatience)));
    EXPECT_EQ(text_of(controller_.collect(id, kPatience).value().front().payload),
              std::to_string(id));
  }
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

// The tensors of a step, whatever the number of workers.
class ManyWorkers : public testing::Test {
 protected:
  static constexpr std::int64_t kFloats = 100'000;
  using Pools = std::vector<detail::PublishPoolStats>;

  explicit ManyWorkers(Transport transport = Transport::automatic)
      : context_(Context::create({.name = "controller", .transport = transport}).value()),
        controller_(Controller::bind(context_, layout_of(3, 1, 1), "127.0.0.1:0").value()) {}

  static detail::PublishPoolStats pool_of(const Context& context) {
    return detail::ContextCore::of(context)->publishing().pool()->stats();
  }
  static TensorDict prompt(float value) {
    TensorDict tensors;
    tensors.set("prompt", Tensor::of<float>({kFloats}, std::vector<float>(kFloats, value)));
    return tensors;
  }
  /// Starts workers that keep the tensors of step 1 until `go`, and then record what their publish
  /// pools have shown.
  void start(WorkerThreads& workers, const std::shared_future<void>& go, Pools& pools) {
    pools.resize(controller_.layout().world_size());
    const auto body = [this, &pools, go](Worker& worker, Context& context) {
      const auto step = worker.next_step(kPatience);
      ASSERT_TRUE(succeeds(step));
      const Tensor prompt = step->inputs.tensors["prompt"];
      EXPECT_EQ(prompt.access(), Access::read_only);
      EXPECT_EQ(prompt.span<const float>()[kFloats - 1], 5.0F);
      ASSERT_TRUE(succeeds(worker.send_outputs({.schedule_id = 1}, kPatience)));
      ++have_them_;
      go.wait();
      pools[worker.rank().value] = pool_of(context);
      // All keep their tensors until each has recorded.
      ++have_counted_;
      EXPECT_TRUE(eventually([&] { return have_counted_ == pools.size(); }));
    };
    for (std::uint32_t rank = 0; rank < pools.size(); ++rank) workers.start_in(rank, body);
  }

  /// Returns when all workers hold its tensors. Only rank 0 sends outputs, so that collect() does
  /// not wait for the others.
  void give_them_step_1() {
    ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
    ASSERT_TRUE(succeeds(
        controller_.broadcast({.schedule_id = 1, .payload = {}, .tensors = prompt(5)}, kPatience)));
    ASSERT_TRUE(succeeds(controller_.collect(1, kPatience)));
    EXPECT_TRUE(eventually([&] { return have_them_ == controller_.layout().world_size(); }));
  }

  Context context_;
  Controller controller_;
  std::atomic<std::uint32_t> have_them_{0};
  std::atomic<std::uint32_t> have_counted_{0};
};

// Each worker maps the one slot that the controller has filled.
TEST_F(ManyWorkers, OfTheControllersHostReadOneCopy) {
  Pools pools;
  std::promise<void> counted;
  WorkerThreads workers(controller_);
  start(workers, counted.get_future().share(), pools);
  ASSERT_NO_FATAL_FAILURE(give_them_step_1());
  EXPECT_EQ(pool_of(context_).slots.loaned_count, 1U);
  EXPECT_EQ(pool_of(context_).holds, 3U);
  counted.set_value();
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
  workers.join();
  for (const auto& pool : pools) EXPECT_EQ(pool.holds, 0U);
}

// A controller that shares no memory with its workers, as if it were on another host.
class ManyWorkersElsewhere : public ManyWorkers {
 protected:
  ManyWorkersElsewhere() : ManyWorkers(Transport::tcp) {}
};

TEST_F(ManyWorkersElsewhere, GetOneCopyForAllAndPassItOn) {
  Pools pools;
  std::promise<void> counted;
  WorkerThreads workers(controller_);
  start(workers, counted.get_future().share(), pools);
  ASSERT_NO_FATAL_FAILURE(give_them_step_1());
  counted.set_value();
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
  workers.join();
  EXPECT_EQ(pools[0].holds, 2U);
  EXPECT_EQ(pools[0].slots.loaned_count, 1U);
  EXPECT_EQ(pools[1].holds + pools[2].holds, 0U);
}

TEST_F(ManyWorkersElsewhere, ARosterAfterTheFirstWorkersLossHasAnotherOne) {
  WorkerThreads workers(controller_);
  workers.start(0, [](Worker& worker) {
    ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
    worker.leave("a test");
  });
  workers.start(1);
  workers.start(2);
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(
      controller_.broadcast({.schedule_id = 1, .payload = {}, .tensors = prompt(1)}, kPatience)));
  EXPECT_TRUE(fails_with(controller_.collect(1, kPatience), ErrorCode::worker_lost, "rank 0"));
  workers.start(0);
  ASSERT_TRUE(succeeds(controller_.rebuild(kPatience)));
  for (std::uint64_t id = 2; id <= 5; ++id) {
    ASSERT_TRUE(succeeds(controller_.broadcast(
        {.schedule_id = id, .payload = {}, .tensors = prompt(2)}, kPatience)));
    EXPECT_TRUE(succeeds(controller_.collect(id, kPatience)));
  }
  // stop() waits until all workers have done these steps, which they cannot do without the tensors.
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(ManyWorkers, ThatLoseTheirLinksFormTheNextRosterAsTheyAre) {
  std::promise<void> all_are_ready;
  WorkerThreads workers(controller_);
  const auto step_and_rebuild = [](Worker& worker) {
    // A worker that learns about another's failure first gets no step.
    const auto step = worker.next_step(kPatience);
    Error why = step.has_value() ? Error() : step.error();
    if (step.has_value()) {
      const Tensor tensor = Tensor::of<float>({1}, {1});
      const auto reduced = worker.groups().tensor->all_reduce(tensor, ReduceOp::sum, kPatience);
      ASSERT_FALSE(reduced.has_value());
      why = reduced.error();
    }
    ASSERT_TRUE(succeeds(worker.rebuild(why, kPatience)));
    echo_steps(worker);
  };
  workers.start_in(0, [&](Worker& worker, Context& context) {
    all_are_ready.get_future().wait();
    const auto links = detail::ContextCore::of(context)->links().all();
    for (const auto& link : *links) {
      if (link->peer().name != "controller")
        link->fail({ErrorCode::peer_lost, "test", "this link was cut"}, detail::Death::not_proved);
    }
    step_and_rebuild(worker);
  });
  workers.start(1, step_and_rebuild);
  workers.start(2, step_and_rebuild);
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  all_are_ready.set_value();
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 1}, kPatience)));
  EXPECT_FALSE(controller_.collect(1, kPatience).has_value());
  ASSERT_TRUE(succeeds(controller_.rebuild(kPatience)));
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(succeeds(controller_.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(ManyWorkersElsewhere, ABrokenRelayIsTheEndOfTheRosterAndNotOfAWorker) {
  std::promise<void> all_are_ready;
  std::promise<void> broken;
  const auto enters_again = [](Worker& worker) {
    auto step = worker.next_step(kPatience);
    // The first worker has its step, and sends no outputs.
    if (step.has_value() && worker.rank().value == 0) step = worker.next_step(kPatience);
    ASSERT_FALSE(step.has_value());
    EXPECT_EQ(step.error().code, ErrorCode::roster_closed) << step.error().message();
    ASSERT_TRUE(succeeds(worker.rebuild(step.error(), kPatience)));
    echo_steps(worker);
  };
  WorkerThreads workers(controller_);
  workers.start_in(0, [&](Worker& worker, Context& context) {
    all_are_ready.get_future().wait();
    const auto links = detail::ContextCore::of(context)->links().all();
    for (const auto& link : *links) {
      if (link->shared_memory() != nullptr)
        link->fail({ErrorCode::peer_lost, "test", "this link was cut"}, detail::Death::not_proved);
    }
    broken.set_value();
    enters_again(worker);
  });
  for (const std::uint32_t follower : {1U, 2U}) workers.start(follower, enters_again);
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  all_are_ready.set_value();
  broken.get_future().wait();
  ASSERT_TRUE(succeeds(
      controller_.broadcast({.schedule_id = 1, .payload = {}, .tensors = prompt(1)}, kPatience)));
  EXPECT_TRUE(fails_with(controller_.collect(1, kPatience), ErrorCode::worker_lost,
                         "the tensors of step 1 were to come from rank 0"));
  ASSERT_TRUE(succeeds(controller_.rebuild(kPatience)));
  ASSERT_TRUE(succeeds(
      controller_.broadcast({.schedule_id = 2, .payload = {}, .tensors = prompt(2)}, kPatience)));
  EXPECT_TRUE(succeeds(controller_.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(OneWorker, AWorkerThatComputesRepliesAndHearsOfACancel) {
  std::promise<void> computing;
  WorkerThreads workers(controller_);
  workers.start(0,
                [&](Worker& worker) {
                  worker.set_load(0.75);
                  const auto step = worker.next_step(kPatience);
                  ASSERT_TRUE(succeeds(step));
                  computing.set_value();
                  EXPECT_TRUE(eventually([&] { return step->cancelled(); }));
                  ASSERT_TRUE(succeeds(
                      worker.send_outputs({.schedule_id = step->inputs.schedule_id}, kPatience)));
                  echo_steps(worker);
                },
                {.payload_version = 7, .free_blocks = 12});
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 41}, kPatience)));
  computing.get_future().wait();
  const auto status = controller_.ask({0}, kPatience);
  ASSERT_TRUE(succeeds(status));
  EXPECT_EQ(status->schedule_id, 41U);
  EXPECT_EQ(status->load, 0.75);
  EXPECT_EQ(status->free_blocks, 12U);
  EXPECT_EQ(status->applied_inputs, 1U);
  EXPECT_GT(status->stalled.count(), 0);
  EXPECT_TRUE(succeeds(controller_.cancel_step(41, kPatience)));
  EXPECT_TRUE(succeeds(controller_.collect(41, kPatience)));
  EXPECT_TRUE(fails_with(controller_.cancel_step(41, kPatience), ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(controller_.ask({5}, kPatience), ErrorCode::invalid_argument));
  EXPECT_TRUE(succeeds(controller_.stop("over", kPatience)));
}

TEST_F(OneWorker, TheStepsThatWereGivenOutAreDoneBeforeTheEnd) {
  std::promise<void> go;
  WorkerThreads workers(controller_);
  workers.start(
      0,
      [&](Worker& worker) {
        go.get_future().wait();
        for (std::uint64_t id = 1; id <= 2; ++id) {
          const auto step = worker.next_step(kPatience);
          ASSERT_TRUE(succeeds(step));
          EXPECT_EQ(step->inputs.schedule_id, id);
        }
        EXPECT_TRUE(fails_with(worker.next_step(kPatience), ErrorCode::end_of_stream, "for tea"));
      },
      {.payload_version = 7});
  ASSERT_TRUE(succeeds(controller_.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 1}, kPatience)));
  ASSERT_TRUE(succeeds(controller_.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(fails_with(controller_.stop("for tea", kBriefly), ErrorCode::timeout, "rank 0"));
  go.set_value();
  EXPECT_TRUE(succeeds(controller_.stop("for tea", kPatience)));
}

TEST(Control, NeedsTheServiceThread) {
  Context context = Context::create({.progress = Progress::manual}).value();
  EXPECT_TRUE(fails_with(Controller::bind(context, layout_of(1, 1, 1), "127.0.0.1:0"),
                         ErrorCode::invalid_argument, "Progress::manual"));
  EXPECT_TRUE(
      fails_with(Worker::connect(context, "127.0.0.1:1", layout_of(1, 1, 1), {0}, kPatience),
                 ErrorCode::invalid_argument, "Progress::manual"));
}

TEST(Control, BetweenHostsFlowsGoOverTcpInEachRosterAnew) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(2, 1, 1), "127.0.0.1:0",
                                           {.security = {Profile::plaintext}})
                              .value();
  WorkerThreads workers(controller);
  const WorkerOptions plaintext{.security = {Profile::plaintext}};
  workers.start(0, echo_steps, plaintext);
  workers.start(
      1,
      [](Worker& worker) {
        ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
        worker.leave("a test");
      },
      plaintext);
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  EXPECT_TRUE(eventually([&] { return controller.status().state == RosterState::closed; }));
  workers.start(1, echo_steps, plaintext);
  ASSERT_TRUE(succeeds(controller.rebuild(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(succeeds(controller.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

TEST(Control, TheControllersEndEndsItsWorkers) {
  Context context = Context::create({.name = "controller"}).value();
  std::optional<Controller> controller =
      Controller::bind(context, layout_of(2, 1, 1), "127.0.0.1:0").value();
  WorkerThreads workers(*controller);
  workers.start_all([](Worker& worker) {
    EXPECT_TRUE(fails_with(worker.next_step(kPatience), ErrorCode::end_of_stream));
  });
  ASSERT_TRUE(succeeds(controller->wait_for_workers(kPatience)));
  controller.reset();
  workers.join();
}

TEST(Control, ALostWorkerClosesTheRosterAndAReplacementMakesTheNext) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(2, 1, 1), "127.0.0.1:0").value();
  std::promise<void> at_work;
  WorkerThreads workers(controller);
  workers.start(0, [&](Worker& worker) {
    // The worker is stuck in a collective until the loss frees it.
    ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
    at_work.set_value();
    const Tensor tensor = Tensor::of<float>({1}, {1});
    const auto reduced = worker.groups().tensor->all_reduce(tensor, ReduceOp::sum, kPatience);
    ASSERT_FALSE(reduced.has_value());
    EXPECT_NE(reduced.error().code, ErrorCode::timeout);
    ASSERT_TRUE(succeeds(worker.rebuild(reduced.error(), kPatience)));
    EXPECT_EQ(worker.roster(), 2U);
    echo_steps(worker);
  });
  workers.start(1, [&](Worker& worker) {
    ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
    at_work.get_future().wait();
    worker.leave("a test");
  });
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  EXPECT_TRUE(fails_with(controller.collect(1, kPatience), ErrorCode::worker_lost, "rank 1"));
  EXPECT_EQ(controller.status().state, RosterState::closed);
  EXPECT_TRUE(fails_with(controller.broadcast({.schedule_id = 2}, 1s), ErrorCode::worker_lost));
  EXPECT_TRUE(fails_with(controller.wait_for_workers(1s), ErrorCode::worker_lost));
  EXPECT_TRUE(fails_with(controller.rebuild(kBriefly), ErrorCode::timeout, "rank 1 of 2"));
  workers.start(1);
  ASSERT_TRUE(succeeds(controller.rebuild(kPatience)));
  EXPECT_EQ(controller.status().roster, 2U);
  EXPECT_TRUE(fails_with(controller.broadcast({.schedule_id = 1}, 1s), ErrorCode::invalid_argument,
                         "not above 1"));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(succeeds(controller.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

TEST(Control, ALossThatIsHeardOfAfterTheFailureItCausedIsTheReason) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(2, 1, 1), "127.0.0.1:0").value();
  WorkerThreads workers(controller);
  workers.start(0, [](Worker& worker) {
    ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
    const Error lost{ErrorCode::peer_lost, "test", "rank 1 died"};
    EXPECT_TRUE(fails_with(worker.rebuild(lost, kPatience), ErrorCode::end_of_stream));
  });
  workers.start(1, [](Worker& worker) {
    Result<Step> step = worker.next_step(kPatience);
    if (step.has_value()) step = worker.next_step(kPatience);
    EXPECT_TRUE(fails_with(step, ErrorCode::roster_closed, "rank 0"));
    worker.leave("a test");
  });
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  EXPECT_TRUE(eventually([&] { return controller.status().reason.starts_with("rank 1 ("); }))
      << controller.status().reason;
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

TEST(Control, AWorkerThatFailsAStepKeepsItsPlaceInTheNextRoster) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(1, 2, 1), "127.0.0.1:0").value();
  WorkerThreads workers(controller);
  workers.start(0);
  workers.start(1, [](Worker& worker) {
    ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
    const Error broken{ErrorCode::internal, "test", "the model says NaN"};
    ASSERT_TRUE(succeeds(worker.rebuild(broken, kPatience)));
    echo_steps(worker);
  });
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  EXPECT_TRUE(fails_with(controller.collect(1, kPatience), ErrorCode::worker_lost,
                         "failed in step 1: the model says NaN"));
  ASSERT_TRUE(succeeds(controller.rebuild(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(succeeds(controller.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

}  // namespace
}  // namespace tendon::test
