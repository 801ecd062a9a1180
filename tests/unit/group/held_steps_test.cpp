// SPDX-License-Identifier: Apache-2.0
// The memory that steps of collectives hold until an operation takes them.
#include "group/membership/held_steps.hpp"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <tendon/session/limits.hpp>
#include <thread>
#include <vector>

#include "group/epochs/collectives.hpp"
#include "support/group_cores.hpp"

namespace tendon::detail {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
/// The limit of the small messages of one link here, of any kind: kMinSmallHeldBytes or an eighth
/// of the cap.
constexpr std::uint64_t kCapBytes = 32 * kMiB;
constexpr std::uint64_t kMostSmallBytes = 4 * kMiB;

/// Two members; this thread makes the progress of both.
class HeldStepsOf : public testing::TestWithParam<Transport> {
 protected:
  HeldStepsOf() : members_(2, GetParam(), kCapBytes) {}
  void SetUp() override { members_.join(); }

  GroupCore& core(std::uint32_t rank) { return *members_.cores[rank]; }
  [[nodiscard]] LinkStats stats() { return core(1).epoch()->channels[{0}]->link().stats(); }
  /// Steps from rank 0 that wait at rank 1.
  std::size_t waiting() {
    const auto epoch = core(1).epoch();
    const Lock lock(epoch->inbox_mutex);
    return epoch->inbox[{0}].size();
  }

  std::shared_ptr<Outbound> queue_step(std::uint64_t size_bytes, std::uint64_t sequence) {
    if (memory_.size() < size_bytes) memory_.resize(size_bytes);
    auto outbound = std::make_shared<Outbound>();
    outbound->envelope = {.kind = EnvelopeKind::collective,
                          .group = core(0).id(),
                          .epoch = core(0).epoch()->number(),
                          .sequence = sequence,
                          .count = size_bytes};
    outbound->parts = {{0, Bytes(memory_.data(), size_bytes), nullptr, size_bytes}};
    core(0).epoch()->channels[{1}]->queue(outbound);
    return outbound;
  }
  /// Sends steps until none arrives any more at the member, which takes none.
  void fill(std::uint64_t size_bytes, std::uint64_t total_bytes) {
    for (std::uint64_t i = 1; i * size_bytes <= total_bytes; ++i)
      sent_.push_back(queue_step(size_bytes, i));
    int quiet = 0;
    for (std::size_t before = 0; quiet < 50;) {
      core(0).epoch()->channels[{1}]->advance();
      for (Context& context : members_.contexts) context.progress();
      const std::size_t now = waiting();
      quiet = now == before ? quiet + 1 : 0;
      before = now;
    }
  }

  /// Runs each member in a thread of its own. Rank 1 makes progress only within its call, where no
  /// scheduled work runs. Rank 0 also does so afterwards, because its words must still leave.
  void both(const std::function<void(std::uint32_t rank)>& call) {
    std::atomic<bool> done{false};
    std::thread other([&] {
      call(0);
      while (!done) members_.contexts[0].progress();
    });
    call(1);
    done = true;
    other.join();
  }
  static void enter(GroupCore& core) {
    const auto entered = core.enter(kSoon, GroupCore::Of::those_left, Fence::none, "test");
    EXPECT_TRUE(entered) << entered.error().message();
  }

  std::vector<std::byte> memory_;
  std::vector<std::shared_ptr<Outbound>> sent_;
  test::GroupCores members_;
};

TEST_P(HeldStepsOf, SmallStepsThatNobodyTakesHoldWhatALinkAllows) {
  fill(256, 12 * kMiB);
  EXPECT_FALSE(sent_.back()->done) << "all of it lies at the member";
  EXPECT_GT(stats().held_bytes, kMostSmallBytes / 2);
  EXPECT_LE(stats().most_held_bytes, kMostSmallBytes);
  EXPECT_LE(waiting() * 256, kMostSmallBytes);
}

// The peer's slots limit these steps only if it keeps to the rules, so the cost here counts too.
TEST_P(HeldStepsOf, LargeStepsThatNobodyTakesHoldSomethingEach) {
  constexpr std::uint64_t kBytes = 2 * kMaxInlineBytes;  // in a slot, or on a bulk lane
  fill(kBytes, 64 * kBytes);
  EXPECT_EQ(waiting(), 64u);
  const std::uint64_t held_bytes = stats().held_bytes;
  EXPECT_GE(held_bytes, waiting() * 256);
  EXPECT_EQ(held_bytes % waiting(), 0u) << "each holds the same";
  core(1).abort("enough");
  EXPECT_TRUE(members_.progress_until([&] { return stats().held_bytes == 0; }));
}

// A member that has failed, and makes no call, does not keep its link paused.
TEST_P(HeldStepsOf, WhatNoOperationTakesAnyMoreIsGivenBack) {
  fill(256, 12 * kMiB);
  core(1).abort("enough");
  EXPECT_TRUE(members_.progress_until([&] {
    core(0).epoch()->channels[{1}]->advance();
    return sent_.back()->done.load() && waiting() == 0 && stats().held_bytes == 0;
  }));
  EXPECT_THAT(core(0).failure("test")->detail, HasSubstr("enough"));
}

// The sender's word about its next epoch is behind the paused steps.
TEST_P(HeldStepsOf, WhoGoesOnToTheNextEpochHearsWhatLiesBehindThem) {
  for (const bool has_failed : {false, true}) {
    SCOPED_TRACE(has_failed ? "the epoch has failed" : "nothing was called");
    fill(256, 12 * kMiB);
    ASSERT_FALSE(sent_.back()->done);
    if (has_failed) core(1).abort("enough");
    both([&](std::uint32_t rank) { enter(core(rank)); });
    ASSERT_TRUE(members_.progress_until([&] {
      core(0).epoch()->channels[{1}]->advance();
      return sent_.back()->done.load() && stats().held_bytes == 0;
    }));
  }
}

// The words of another group on the same link arrive, too.
TEST_P(HeldStepsOf, AnotherGroupHearsWhatLiesBehindThem) {
  std::vector<std::shared_ptr<GroupCore>> others(2);
  both([&](std::uint32_t rank) {
    auto made = core(rank).subgroup(std::array{GroupRank{0}, GroupRank{1}}, kSoon, "other");
    ASSERT_TRUE(made) << made.error().message();
    others[rank] = *std::move(made);
  });
  fill(256, 12 * kMiB);
  core(1).abort("enough");
  both([&](std::uint32_t rank) { enter(*others[rank]); });
  for (const auto& other : others) other->leave();
}

TEST_P(HeldStepsOf, WhoLeavesGivesBackWhatItHeld) {
  fill(256, 12 * kMiB);
  const auto channel = core(1).epoch()->channels[{0}];
  core(1).mesh()->add(99, {});  // another group of these members stays
  core(1).leave();
  EXPECT_TRUE(members_.progress_until([&] {
    core(0).epoch()->channels[{1}]->advance();
    return sent_.back()->done.load() && channel->link().stats().held_bytes == 0;
  }));
}

INSTANTIATE_TEST_SUITE_P(Paths, HeldStepsOf, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

class HeldStepsOverTcp : public HeldStepsOf {};

TEST_P(HeldStepsOverTcp, LargeStepsThatNobodyTakesShutTheWindow) {
  fill(kMiB, 64 * kMiB);
  EXPECT_FALSE(sent_.back()->done);
  EXPECT_GT(stats().held_bytes, kCapBytes / 2);
  EXPECT_LE(stats().most_held_bytes, kCapBytes + kCapBytes / 8);
}

// The root of a broadcast waits for nobody: it may be far ahead, but no member has to keep its
// steps.
TEST_P(HeldStepsOverTcp, ARootThatIsAheadIsHeldBackAndLosesNothing) {
  constexpr std::int64_t kCalls = 12'000;
  const Tensor mine = Tensor::zeros(DType::u8, Shape({1024})).value();
  const Tensor theirs = Tensor::zeros(DType::u8, Shape({1024})).value();
  const Tensors given = mine;
  const Tensors got = theirs;
  std::vector<Completion<void>> calls;
  const auto start = [&](GroupCore& core, const Tensors& tensors) {
    calls.push_back(core.calls().start([&](Epoch& epoch, std::uint64_t sequence) {
      return make_operation(core, epoch, sequence,
                            {.op = CollectiveOp::broadcast, .output = &tensors}, Hold::keep);
    }));
  };
  for (std::int64_t i = 0; i < kCalls; ++i) start(core(0), given);
  (void)members_.progress_until([&] { return stats().held_bytes > kMostSmallBytes - 16384; });
  EXPECT_FALSE(calls.back().done()) << "all of it lies at the member";
  EXPECT_LE(stats().most_held_bytes, kMostSmallBytes);
  for (std::int64_t i = 0; i < kCalls; ++i) start(core(1), got);
  ASSERT_TRUE(members_.progress_until([&] {
    return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call.done(); });
  }));
  for (auto& call : calls) ASSERT_TRUE(call.wait(0s));
  EXPECT_LE(stats().most_held_bytes, kMostSmallBytes);
  EXPECT_TRUE(members_.progress_until([&] { return stats().held_bytes == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Tcp, HeldStepsOverTcp, testing::Values(Transport::tcp));

// The class itself

TEST(HeldSteps, WhatWasTakenIsGivenBackBySettle) {
  test::GroupCores members(2);
  members.join();
  const auto channel = members.cores[0]->epoch()->channels[{1}];
  const auto link = channel->link().shared_from_this();
  const auto home = std::make_shared<HeldSteps>(members.cores[0]->context(), link);
  HeldBytes held(1000, [] {});
  const auto hold = [&](std::uint64_t size_bytes) {
    const Lock receiving(link->receive_mutex());
    return HeldSteps::Part(home, HeldBytes::Share(held, size_bytes));
  };
  HeldSteps::Part taken = hold(10);
  HeldSteps::Part kept = hold(20);
  HeldSteps::Part dropped = hold(40);
  taken.let_go();
  home->settle();
  EXPECT_EQ(held.bytes(), 60u);
  dropped = {};  // the Context settles it
  EXPECT_EQ(held.bytes(), 60u);
  members.contexts[0].progress();
  EXPECT_EQ(held.bytes(), 20u);
  {
    const Lock receiving(link->receive_mutex());
    kept.give_back();
  }
  EXPECT_EQ(held.bytes(), 0u);
}

}  // namespace
}  // namespace tendon::detail
