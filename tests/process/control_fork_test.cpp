// SPDX-License-Identifier: Apache-2.0
// docs/fork.md, "What a child may do": a controller and a worker, in a child of a process whose
// threads move steps.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <string>
#include <tendon/control/controller.hpp>
#include <tendon/control/worker.hpp>
#include <thread>

#include "support/child.hpp"
#include "support/control_team.hpp"
#include "support/expect.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

// Static, so that a child that exits destroys them.
std::optional<Context> controllers_context;
std::optional<Context> workers_context;
std::optional<Controller> controller;
std::optional<Worker> worker;

template <class T>
bool is_forked(const Result<T>& result) {
  return !result && result.error().code == ErrorCode::forked;
}

class ForkedControl : public testing::Test {
 protected:
  void SetUp() override {
    if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
    const ParallelLayout layout = layout_of(1, 1, 1);
    controllers_context = Context::create({.name = "controller"}).value();
    workers_context = Context::create({.name = "worker"}).value();
    controller = Controller::bind(*controllers_context, layout, "127.0.0.1:0").value();
    std::thread connecting([&] {
      worker =
          Worker::connect(*workers_context, controller->address(), layout, {0}, kPatience).value();
    });
    EXPECT_TRUE(succeeds(controller->wait_for_workers(kPatience)));
    connecting.join();
    working_ = std::thread([] {
      echo_steps(*worker);
      worker.reset();
    });
    giving_ = std::thread([this] {
      for (std::uint64_t id = 1; !over_ && !HasFailure(); ++id) {
        EXPECT_TRUE(succeeds(controller->broadcast(
            {.schedule_id = id, .payload = storage_of(std::to_string(id))}, kPatience)));
        EXPECT_TRUE(succeeds(controller->collect(id, kPatience)));
      }
      EXPECT_TRUE(succeeds(controller->stop("over", kPatience)));
    });
  }
  void TearDown() override {
    over_ = true;
    if (giving_.joinable()) giving_.join();
    if (working_.joinable()) working_.join();
    worker.reset();
    controller.reset();
    workers_context.reset();
    controllers_context.reset();
  }

  template <class Body>
  static void in_children(Body body) {
    for (int i = 0; i < 20; ++i) {
      const int status = run_in_child([&] {
        std::array<std::thread, 4> threads;
        for (std::thread& thread : threads) thread = std::thread([] {});
        for (std::thread& thread : threads) thread.join();
        return body();
      });
      ASSERT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
    }
  }

  std::atomic<bool> over_{false};
  std::thread working_;
  std::thread giving_;
};

TEST_F(ForkedControl, IsDropped) {
  in_children([] {
    worker.reset();
    controller.reset();
    workers_context.reset();
    controllers_context.reset();
    return 0;
  });
}

TEST_F(ForkedControl, AnswersAtOnceAndIsClosed) {
  in_children([] {
    Controller& asked = *controller;
    if (asked.address().empty() || asked.status().roster != 0 || asked.stats().sent != 0) return 1;
    if (!is_forked(asked.wait_for_workers(kPatience)) || !is_forked(asked.rebuild(kPatience)) ||
        !is_forked(asked.broadcast({.schedule_id = 1}, kPatience)) ||
        !is_forked(asked.collect(1, kPatience)) ||
        !is_forked(asked.wait_for_microbatch(1, kPatience)) ||
        !is_forked(asked.cancel_step(1, kPatience)) || !is_forked(asked.ask({0}, kPatience)) ||
        !is_forked(asked.drain(kPatience)) || !is_forked(asked.stop("in a child", kPatience)))
      return 2;
    Worker& told = *worker;
    if (told.roster() != 0 || told.groups().world != nullptr || told.stats().sent != 0) return 3;
    told.set_load(0.5);
    if (!is_forked(told.next_step(kPatience)) ||
        !is_forked(told.send_outputs({.schedule_id = 1}, kPatience)) ||
        !is_forked(told.signal_microbatch(1, kPatience)) ||
        !is_forked(told.rebuild(Error{ErrorCode::internal, "test", "why"}, kPatience)))
      return 4;
    told.leave("in a child");
    return 0;
  });
}

TEST_F(ForkedControl, IsKeptUntilTheChildExits) {
  in_children([] {
    std::exit(0);
    return 1;
  });
}

}  // namespace
}  // namespace tendon::test
