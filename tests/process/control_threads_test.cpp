// SPDX-License-Identifier: Apache-2.0
// A controller and a worker in processes with a limited number of threads. ZeroMQ ends a process in
// which it can start none.
#include <gtest/gtest.h>

#include <atomic>
#include <tendon/control/controller.hpp>
#include <tendon/control/worker.hpp>
#include <thread>
#include <utility>

#include "process/few_threads.hpp"
#include "support/control_team.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

Result<void> make_controller() {
  TENDON_TRY(context, Context::create({.name = "controller"}));
  TENDON_TRY(controller, Controller::bind(context, layout_of(1, 1, 1), "127.0.0.1:0"));
  return controller.stop("made", kPatience);
}

TEST(FewThreadsOfControl, MakeAControllerWholeOrAreAnError) {
  expect_whole_or_error({.name = "controller", .enough = 4, .make = make_controller});
}

// The controller, in this process, admits every worker. A worker that left before its roster runs
// would use up an attempt to form it, so each worker takes a step first.
TEST(FewThreadsOfControl, MakeAWorkerWholeOrAreAnError) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(1, 1, 1), "127.0.0.1:0").value();
  std::atomic<bool> over{false};
  std::thread forming([&] {
    for (std::uint64_t step = 1; !over; ++step) {
      if (!controller.wait_for_workers(kBriefly) && !controller.rebuild(kBriefly)) continue;
      (void)controller.broadcast({.schedule_id = step}, kBriefly);
    }
  });
  expect_whole_or_error(
      {.name = "worker", .enough = 5, .make = [&]() -> Result<void> {
         TENDON_TRY(own, Context::create({.name = "worker"}));
         TENDON_TRY(worker,
                    Worker::connect(own, controller.address(), layout_of(1, 1, 1), {0}, kPatience));
         TENDON_TRY(step, worker.next_step(kPatience));
         return worker.send_outputs({.schedule_id = step.inputs.schedule_id}, kPatience);
       }});
  over = true;
  forming.join();
}

}  // namespace
}  // namespace tendon::test
