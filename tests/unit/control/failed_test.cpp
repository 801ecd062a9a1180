// SPDX-License-Identifier: Apache-2.0
// A controller that forms no further roster tells this to the workers that would wait for one.
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <string>
#include <utility>

#include "control/flows/step_message.hpp"
#include "control/relay/word.hpp"
#include "support/control_team.hpp"

namespace tendon::test {
namespace {

/// Takes the place of a rank, and never enters a roster.
class Idler {
 public:
  Idler(const Controller& controller, std::uint32_t rank)
      : pipe_(Pipe::connect(context_, controller.address(), kPatience).value()) {
    const ParallelSizes& sizes = controller.layout().sizes();
    v1::Word word;
    word.mutable_join()->set_version(detail::kControlVersion);
    word.mutable_join()->set_rank(rank);
    word.mutable_join()->set_tensor_parallel_size(sizes.tensor);
    word.mutable_join()->set_pipeline_parallel_size(sizes.pipeline);
    word.mutable_join()->set_kv_parallel_size(sizes.kv);
    word.mutable_join()->set_incarnation(1);
    const std::string bytes = word.SerializeAsString();
    EXPECT_TRUE(succeeds(pipe_.send(as_bytes(bytes), {}, kPatience)));
  }
  void leave() { (void)pipe_.close(Deadline::now()); }

 private:
  Context context_ = Context::create({.name = "idler"}).value();
  Pipe pipe_;
};

TEST(FailedController, TellsItsWorkersAndRefusesOthers) {
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(2, 1, 1), "127.0.0.1:0").value();
  auto waits = std::async(std::launch::async, [&]() -> Result<void> {
    TENDON_TRY(own, Context::create({.name = "worker 0"}));
    TENDON_TRY(worker,
               Worker::connect(own, controller.address(), controller.layout(), {0}, kPatience));
    return {};
  });
  auto forms =
      std::async(std::launch::async, [&] { return controller.wait_for_workers(kPatience); });
  for (std::uint64_t roster = 1; roster <= kMaxRosterAttempts; ++roster) {
    Idler idler(controller, 1);
    ASSERT_TRUE(eventually([&] { return controller.status().roster == roster; }));
    idler.leave();
    ASSERT_TRUE(eventually([&] { return controller.status().state != RosterState::forming; }));
  }
  const std::string why = "3 attempts to form a roster failed";
  EXPECT_TRUE(fails_with(forms.get(), ErrorCode::worker_lost, why));
  EXPECT_TRUE(fails_with(waits.get(), ErrorCode::cancelled, why));
  for (const WorkerStatus& worker : controller.status().workers)
    EXPECT_EQ(worker.state, WorkerStatus::State::gone);

  Context late = Context::create({.name = "late"}).value();
  EXPECT_TRUE(
      fails_with(Worker::connect(late, controller.address(), controller.layout(), {1}, kPatience),
                 ErrorCode::cancelled, why));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

}  // namespace
}  // namespace tendon::test
