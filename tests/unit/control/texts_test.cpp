// SPDX-License-Identifier: Apache-2.0
// The texts of programs about failures and ends may have any letters and bytes: none of them may
// end a worker.
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/text.hpp"
#include "support/control_team.hpp"

namespace tendon::test {
namespace {

std::string repeated(std::string_view text, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

struct Said {
  const char* name;
  std::string text;
  std::string arrives;  ///< its beginning for others
};
void PrintTo(const Said& said, std::ostream* out) { *out << said.name; }

class Texts : public testing::TestWithParam<Said> {};

INSTANTIATE_TEST_SUITE_P(
    All, Texts,
    testing::Values(Said{"Ascii", repeated("x", 5000), "xxxx"},
                    Said{"TwoBytes", "x" + repeated("\xC3\xA9", 2500), "x\xC3\xA9\xC3\xA9"},
                    Said{"ThreeBytes", repeated("\xE6\x97\xA5", 2000), "\xE6\x97\xA5\xE6\x97\xA5"},
                    Said{"FourBytes", "abc" + repeated("\xF0\x9F\x98\x80", 1500), "abc\xF0\x9F"},
                    Said{"Latin1", "caf\xE9 " + repeated("\xE9", 2500), "caf\\xe9 \\xe9"},
                    Said{"CutByItsProgram", "x\xC3", "x\\xc3"}),
    [](const auto& tested) { return tested.param.name; });

TEST_P(Texts, OfAFailureReachAllAndEndNobody) {
  const Said& said = GetParam();
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(3, 1, 1), "127.0.0.1:0").value();
  WorkerThreads workers(controller);
  const auto hears_of_it = [&](Worker& worker) {
    Result<Step> step = worker.next_step(kPatience);
    if (step.has_value()) step = worker.next_step(kPatience);
    EXPECT_TRUE(fails_with(step, ErrorCode::roster_closed, said.arrives));
    ASSERT_FALSE(step.has_value());
    EXPECT_TRUE(detail::is_utf8(step.error().detail));
    ASSERT_TRUE(succeeds(worker.rebuild(step.error(), kPatience)));
    echo_steps(worker);
  };
  workers.start(0, hears_of_it);
  workers.start(1, [&](Worker& worker) {
    ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
    ASSERT_TRUE(succeeds(worker.rebuild({ErrorCode::internal, "test", said.text}, kPatience)));
    EXPECT_EQ(worker.roster(), 2U);
    echo_steps(worker);
  });
  workers.start(2, hears_of_it);
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  const auto lost = controller.collect(1, kPatience);
  EXPECT_TRUE(fails_with(lost, ErrorCode::worker_lost, said.arrives));
  EXPECT_TRUE(detail::is_utf8(controller.status().reason));
  ASSERT_TRUE(succeeds(controller.rebuild(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(succeeds(controller.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

TEST_P(Texts, OfAnEndReachAll) {
  const Said& said = GetParam();
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(2, 1, 1), "127.0.0.1:0").value();
  WorkerThreads workers(controller);
  workers.start_all([&](Worker& worker) {
    const auto step = worker.next_step(kPatience);
    EXPECT_TRUE(fails_with(step, ErrorCode::end_of_stream, said.arrives));
    ASSERT_FALSE(step.has_value());
    EXPECT_TRUE(detail::is_utf8(step.error().detail));
  });
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  EXPECT_TRUE(succeeds(controller.stop(said.text, kPatience)));
}

}  // namespace
}  // namespace tendon::test
