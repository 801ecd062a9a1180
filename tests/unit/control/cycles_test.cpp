// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/control_team.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

std::ptrdiff_t entries_of(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

// A controller and its worker, made and ended again and again on two Contexts.
TEST(ControlCycles, LeaveNoDescriptorAndNoThread) {
  int cycles = 500;
  if (std::getenv("TENDON_TEST_LONG") != nullptr) cycles = 10000;
  if (TENDON_SANITIZED != 0) cycles = 20;
  Context mine = Context::create({.name = "controller"}).value();
  Context its = Context::create({.name = "worker"}).value();
  const ParallelLayout layout = layout_of(1, 1, 1);
  const auto cycle = [&] {
    Controller controller = Controller::bind(mine, layout, "127.0.0.1:0").value();
    std::thread thread([&] {
      auto worker = Worker::connect(its, controller.address(), layout, {0}, kPatience);
      ASSERT_TRUE(succeeds(worker));
      ASSERT_TRUE(succeeds(worker->next_step(kPatience)));
      ASSERT_TRUE(succeeds(worker->send_outputs({.schedule_id = 1}, kPatience)));
      EXPECT_TRUE(fails_with(worker->next_step(kPatience), ErrorCode::end_of_stream));
    });
    EXPECT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
    EXPECT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
    EXPECT_TRUE(succeeds(controller.collect(1, kPatience)));
    EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
    thread.join();
  };
  for (int i = 0; i < 5; ++i) cycle();
  const auto descriptors = entries_of("/proc/self/fd");
  const auto threads = entries_of("/proc/self/task");
  for (int i = 0; i < cycles && !HasFailure(); ++i) cycle();
  // Descriptors and threads may outlive an orderly end for a moment.
  EXPECT_TRUE(eventually([&] { return entries_of("/proc/self/fd") <= descriptors; }))
      << entries_of("/proc/self/fd") << " descriptors, " << descriptors << " before";
  EXPECT_TRUE(eventually([&] { return entries_of("/proc/self/task") <= threads; }))
      << entries_of("/proc/self/task") << " threads, " << threads << " before";
}

}  // namespace
}  // namespace tendon::test
