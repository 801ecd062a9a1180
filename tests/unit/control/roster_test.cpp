// SPDX-License-Identifier: Apache-2.0
// Rosters that are over before a worker has begun to enter them.
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>

#include "support/control_team.hpp"

namespace tendon::test {
namespace {

constexpr std::uint32_t kSize = 3;

/// When the program of rank 0 calls rebuild() again.
enum class Comes : std::uint8_t {
  between,  ///< when the outdated roster is closed, and there is no other one yet
  after,    ///< after it was told about the next roster too
};

struct OutdatedCase {
  const char* name;
  Profile profile;
  std::uint64_t outdated;  ///< this many rosters end while rank 0 is away
  Comes comes;
};
void PrintTo(const OutdatedCase& tested, std::ostream* out) { *out << tested.name; }

/// Expects that all members of this roster's world meet in it.
void expect_to_be_in(const Worker& worker, std::uint64_t roster) {
  EXPECT_EQ(worker.roster(), roster);
  const WorkerGroups groups = worker.groups();
  ASSERT_EQ(groups.world->size(), kSize);
  const Tensor tensor = Tensor::of<float>({1}, {static_cast<float>(worker.rank().value + 1)});
  ASSERT_TRUE(succeeds(groups.world->all_reduce(tensor, ReduceOp::sum, kPatience)));
  EXPECT_EQ(tensor.span<float>()[0], 6);
}

/// The error of next_step() when the roster has ended: a step may arrive first.
Error end_of_roster(Worker& worker) {
  Result<Step> step = worker.next_step(kPatience);
  if (step.has_value()) step = worker.next_step(kPatience);
  EXPECT_TRUE(fails_with(step, ErrorCode::roster_closed, "rank 1"));
  return step.has_value() ? Error{ErrorCode::internal, "test", "a third step"} : step.error();
}

bool comes(std::promise<void>& promise) {
  return promise.get_future().wait_for(kPatience) == std::future_status::ready;
}

/// A worker that joins and dies before its first roster runs.
class ShortLived {
 public:
  ShortLived(const Controller& controller, std::uint32_t rank, const WorkerOptions& options)
      : thread_([this, &controller, rank, options] {
          const auto worker = Worker::connect(context_, controller.address(), controller.layout(),
                                              {rank}, kPatience, options);
          EXPECT_FALSE(worker.has_value());
        }) {}
  ~ShortLived() { thread_.join(); }
  void die() { (void)context_.close(Deadline::now()); }

 private:
  Context context_ = Context::create({.name = "one that dies"}).value();
  std::thread thread_;
};

class OutdatedRebuild : public testing::TestWithParam<OutdatedCase> {};

constexpr OutdatedCase kOutdated[] = {
    {"Between", Profile::local, 1, Comes::between},
    {"After", Profile::local, 1, Comes::after},
    {"AfterTwo", Profile::local, 2, Comes::after},
    {"BetweenHosts", Profile::plaintext, 1, Comes::after},
};
INSTANTIATE_TEST_SUITE_P(All, OutdatedRebuild, testing::ValuesIn(kOutdated),
                         [](const auto& tested) { return tested.param.name; });

// Rank 1 dies, and so does each of its replacements. Meanwhile rank 2 enters the roster. Rank 0
// has said that it is done with the previous roster, and is not in rebuild().
TEST_P(OutdatedRebuild, IsAbandonedForTheNext) {
  const OutdatedCase& tested = GetParam();
  const WorkerOptions options{.security = {tested.profile}};
  const std::uint64_t last = 1 + tested.outdated + 1;
  Context context = Context::create({.name = "controller"}).value();
  Controller controller = Controller::bind(context, layout_of(kSize, 1, 1), "127.0.0.1:0",
                                           {.security = {tested.profile}})
                              .value();
  std::promise<void> away;
  std::promise<void> comes_back;
  std::promise<void> found_none;
  std::promise<void> enters;
  std::optional<Worker> other;  // rank 2, which enters every roster
  WorkerThreads workers(controller);
  workers.start(
      0,
      [&](Worker& worker) {
        const Error end = end_of_roster(worker);
        const std::string none = "other workers are missing";
        EXPECT_TRUE(fails_with(worker.rebuild(end, kBriefly), ErrorCode::timeout, none));
        const std::uint64_t epoch = worker.groups().world->epoch_number();
        away.set_value();
        ASSERT_TRUE(comes(comes_back));
        EXPECT_EQ(worker.groups().world->epoch_number(), epoch);
        if (tested.comes == Comes::between) {
          EXPECT_TRUE(fails_with(worker.rebuild(end, kBriefly), ErrorCode::timeout, none));
          EXPECT_EQ(worker.groups().world->epoch_number(), epoch);
          found_none.set_value();
        }
        ASSERT_TRUE(succeeds(worker.rebuild(end, kPatience)));
        expect_to_be_in(worker, last);
        echo_steps(worker);
      },
      options);
  workers.start(
      1,
      [](Worker& worker) {
        ASSERT_TRUE(succeeds(worker.next_step(kPatience)));
        worker.leave("a test");
      },
      options);
  workers.start(
      2,
      [&](Worker& worker) {
        const Error end = end_of_roster(worker);
        other.emplace(std::move(worker));
        enters.set_value();
        ASSERT_TRUE(succeeds(other->rebuild(end, kPatience)));
        expect_to_be_in(*other, last);
        echo_steps(*other);
      },
      options);
  ASSERT_TRUE(succeeds(controller.wait_for_workers(kPatience)));
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 1}, kPatience)));
  ASSERT_TRUE(comes(away));
  ASSERT_TRUE(comes(enters));

  auto formed = std::async(std::launch::async, [&] { return controller.rebuild(kPatience); });
  for (std::uint64_t roster = 2; roster < last; ++roster) {
    ShortLived replacement(controller, 1, options);
    ASSERT_TRUE(eventually([&] { return other->roster() == roster; }));
    EXPECT_EQ(controller.status().state, RosterState::forming);
    replacement.die();
    ASSERT_TRUE(eventually([&] { return controller.status().state == RosterState::gathering; }));
  }
  // Words on a worker pipe are read in their order: its reply proves that it has read the end.
  ASSERT_TRUE(succeeds(controller.ask({0}, kPatience)));
  if (tested.comes == Comes::between) {
    comes_back.set_value();
    ASSERT_TRUE(comes(found_none));
  }
  workers.start(
      1,
      [&](Worker& worker) {
        expect_to_be_in(worker, last);
        echo_steps(worker);
      },
      options);
  if (tested.comes == Comes::after) {
    ASSERT_TRUE(eventually([&] { return controller.status().roster == last; }));
    ASSERT_TRUE(succeeds(controller.ask({0}, kPatience)));
    comes_back.set_value();
  }
  ASSERT_TRUE(succeeds(formed.get()));
  EXPECT_EQ(controller.status().roster, last);
  ASSERT_TRUE(succeeds(controller.broadcast({.schedule_id = 2}, kPatience)));
  EXPECT_TRUE(succeeds(controller.collect(2, kPatience)));
  EXPECT_TRUE(succeeds(controller.stop("over", kPatience)));
}

}  // namespace
}  // namespace tendon::test
