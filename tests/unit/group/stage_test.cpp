// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/group/stage.hpp>
#include <utility>
#include <vector>

#include "support/group_members.hpp"

namespace tendon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

using StageBody = std::function<void(Group& world, Group& own, bool sends, GroupRank peer)>;

// Two stages of `tensor` members each.
void run_stages(std::uint32_t tensor, const StageBody& body,
                const test::GroupMembersOptions& options) {
  const auto layout = ParallelLayout::make({.tensor = tensor, .pipeline = 2, .kv = 1}).value();
  test::run_members(
      2 * tensor,
      [&](Context&, Group& world) {
        const GlobalRank me{world.rank().value};
        auto own = world.split(layout.tensor_group_of(me).value(), kSoon);
        ASSERT_TRUE(own) << own.error().message();
        const bool sends = layout.place_of(me).value().pipeline == 0;
        body(world, *own, sends, GroupRank{sends ? me.value + tensor : me.value - tensor});
        ASSERT_TRUE(world.barrier(kSoon));
      },
      options);
}

void pass_tensors_of_any_size(Group& world, Group& own, bool sends, GroupRank peer) {
  for (const std::int64_t count : {0, 1, 63, 1000, 300'001, 2'000'003}) {
    const Tensor values = Tensor::empty(DType::u16, Shape({count})).value();
    for (std::int64_t i = 0; i < count; ++i)
      values.span<std::uint16_t>()[static_cast<std::size_t>(i)] =
          sends ? static_cast<std::uint16_t>(i * 7) : std::uint16_t{0};
    const auto done = sends ? send_to_stage(world, own, values, peer, kSoon)
                            : recv_from_stage(world, own, values, peer, kSoon);
    ASSERT_TRUE(done) << done.error().message();
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(values.item<std::uint16_t>({i}), static_cast<std::uint16_t>(i * 7)) << i;
  }
}

class Stages : public testing::TestWithParam<Transport> {
 protected:
  void run(std::uint32_t tensor, const StageBody& body) const {
    run_stages(tensor, body, {.transport = GetParam()});
  }
};

TEST_P(Stages, ATensorOfAnySizeArrivesWholeAtEveryMember) {
  for (const std::uint32_t tensor : {1u, 2u, 3u}) run(tensor, pass_tensors_of_any_size);
}

class StagesOnHosts : public testing::TestWithParam<std::string> {};

// A member's messages depend on which members share its host, so each case has its own mixture.
TEST_P(StagesOnHosts, ATensorOfAnySizeArrivesWholeAtEveryMember) {
  if (!test::may_name_hosts()) GTEST_SKIP() << "may not make namespaces for names of hosts";
  run_stages(2, pass_tensors_of_any_size, {.hosts = GetParam()});
}

INSTANTIATE_TEST_SUITE_P(Hosts, StagesOnHosts,
                         testing::Values("aabb", "abab", "aaab", "aaba", "abaa", "baaa"),
                         [](const auto& hosts) { return hosts.param; });

TEST_P(Stages, TensorsWithGapsOnEitherSide) {
  run(2, [](Group& world, Group& own, bool sends, GroupRank peer) {
    const Tensor whole = Tensor::zeros(DType::f32, Shape({20, 30})).value();
    if (sends)
      for (std::size_t i = 0; i < 600; ++i) whole.span<float>()[i] = static_cast<float>(i);
    const Tensor turned = whole.transpose(0, 1).value();
    const auto done = sends ? send_to_stage(world, own, turned, peer, kSoon)
                            : recv_from_stage(world, own, turned, peer, kSoon);
    ASSERT_TRUE(done) << done.error().message();
    for (std::size_t i = 0; i < 600; ++i) ASSERT_EQ(whole.span<float>()[i], static_cast<float>(i));
  });
}

TEST_P(Stages, AnotherShapeIsNamed) {
  run(2, [](Group& world, Group& own, bool sends, GroupRank peer) {
    const Tensor values =
        Tensor::zeros(sends ? DType::f32 : DType::f16, sends ? Shape({4, 2}) : Shape({2, 4}))
            .value();
    if (sends) {
      ASSERT_TRUE(send_to_stage(world, own, values, peer, kSoon));
      return;
    }
    const auto failed = recv_from_stage(world, own, values, peer, kSoon);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::mismatch);
    EXPECT_THAT(failed.error().detail, AllOf(HasSubstr("f32 [4, 2]"), HasSubstr("f16 [2, 4]")));
  });
}

// One member of the stage has lost its counterpart, so it gets nothing to gather.
TEST_P(Stages, WhoGetsNothingEndsTheGatherOfTheOthers) {
  const auto layout = ParallelLayout::make({.tensor = 2, .pipeline = 2, .kv = 1}).value();
  std::promise<void> other;
  auto other_is_done = other.get_future().share();
  test::run_members(
      4,
      [&](Context&, Group& world) {
        const GlobalRank me{world.rank().value};
        auto own = world.split(layout.tensor_group_of(me).value(), kSoon);
        ASSERT_TRUE(own) << own.error().message();
        const Tensor values = Tensor::zeros(DType::f32, Shape({1'000'000})).value();
        if (me.value == 1) return;
        if (me.value == 0) {
          // Its counterpart may have stopped receiving.
          (void)send_to_stage(world, *own, values, GroupRank{2}, kSoon);
          return;
        }
        const auto done = recv_from_stage(world, *own, values, GroupRank{me.value - 2}, kSoon);
        // In one memory each member has got all of it from its counterpart.
        if (done) {
          EXPECT_TRUE(me.value == 2 && GetParam() == Transport::automatic);
        } else {
          EXPECT_NE(done.error().code, ErrorCode::timeout) << done.error().message();
          EXPECT_THAT(done.error().detail, HasSubstr("rank 1")) << done.error().message();
        }
        // A leaving member would end it too.
        if (me.value == 3) return other_is_done.wait();
        other.set_value();
      },
      {.transport = GetParam()});
}

TEST_P(Stages, AWrongPeerIsNobodyElsesAffair) {
  const auto layout = ParallelLayout::make({.tensor = 2, .pipeline = 1, .kv = 1}).value();
  test::run_members(
      2,
      [&](Context&, Group& world) {
        auto own =
            world.split(layout.tensor_group_of(GlobalRank{world.rank().value}).value(), kSoon);
        ASSERT_TRUE(own) << own.error().message();
        const Tensor values = Tensor::zeros(DType::f32, Shape({1000})).value();
        for (const std::uint32_t peer : {world.rank().value, 2u}) {
          const auto done = recv_from_stage(world, *own, values, GroupRank{peer}, kSoon);
          EXPECT_TRUE(
              test::fails_with(done, ErrorCode::invalid_argument, "rank " + std::to_string(peer)));
        }
        EXPECT_TRUE(own->barrier(kSoon));
      },
      {.transport = GetParam()});
}

TEST_P(Stages, WhatDoesNotComeInTimeIsNamed) {
  std::promise<void> given_up;
  auto waits = given_up.get_future().share();
  const auto layout = ParallelLayout::make({.tensor = 1, .pipeline = 2, .kv = 1}).value();
  test::run_members(2,
                    [&](Context&, Group& world) {
                      const GlobalRank me{world.rank().value};
                      auto own = world.split(layout.tensor_group_of(me).value(), kSoon);
                      ASSERT_TRUE(own) << own.error().message();
                      const Tensor values = Tensor::zeros(DType::f32, Shape({1000})).value();
                      if (me.value == 0) return waits.wait();
                      const auto late = recv_from_stage(world, *own, values, GroupRank{0}, 10ms);
                      ASSERT_FALSE(late);
                      EXPECT_EQ(late.error().code, ErrorCode::timeout);
                      EXPECT_THAT(late.error().detail, HasSubstr("rank 0"));
                      given_up.set_value();
                    },
                    {.transport = GetParam()});
}

Tensor numbered(std::int64_t count, std::uint16_t seed) {
  Tensor values = Tensor::empty(DType::u16, Shape({count})).value();
  std::uint16_t next = seed;
  for (std::uint16_t& value : values.span<std::uint16_t>())
    value = std::exchange(next, static_cast<std::uint16_t>(next + 7));
  return values;
}

bool equal(const Tensor& a, const Tensor& b) {
  return a.size_bytes() == b.size_bytes() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

constexpr std::uint16_t kMicrobatches = 5;
// Two chunks for each of two members, and a little.
constexpr std::int64_t kValues = 2'000'003;

// Stages compute while microbatches travel: each member in its own order, in either form.
void overlap_with_collectives(Group& world, Group& own, bool sends, GroupRank peer) {
  std::vector<Tensor> tensors;
  std::vector<Completion<void>> under_way;
  const Tensor sum = Tensor::zeros(DType::f32, Shape({1000})).value();
  for (std::uint16_t k = 0; k < kMicrobatches; ++k) {
    tensors.push_back(sends ? numbered(kValues, k)
                            : Tensor::zeros(DType::u16, Shape({kValues})).value());
    // The last one waits, and overtakes nothing.
    if (k + 1 < kMicrobatches) {
      under_way.push_back(sends ? send_to_stage_async(world, own, tensors.back(), peer)
                                : recv_from_stage_async(world, own, tensors.back(), peer));
    } else {
      ASSERT_TRUE(test::succeeds(sends ? send_to_stage(world, own, tensors.back(), peer, kSoon)
                                       : recv_from_stage(world, own, tensors.back(), peer, kSoon)));
    }
    ASSERT_TRUE(test::succeeds(own.all_reduce(sum, ReduceOp::sum, kSoon)));
  }
  if (own.rank().value == 1) std::ranges::reverse(under_way);
  for (auto& each : under_way) ASSERT_TRUE(test::succeeds(each.wait(kSoon)));
  for (std::uint16_t k = 0; k < kMicrobatches; ++k)
    ASSERT_TRUE(equal(tensors[k], numbered(kValues, k))) << k;
}

TEST_P(Stages, MicrobatchesTravelWhileTheStagesComputeInAnyOrder) {
  for (const std::uint32_t tensor : {1u, 2u, 3u}) run(tensor, overlap_with_collectives);
}

TEST_P(StagesOnHosts, MicrobatchesTravelWhileTheStagesComputeInAnyOrder) {
  if (!test::may_name_hosts()) GTEST_SKIP() << "may not make namespaces for names of hosts";
  run_stages(2, overlap_with_collectives, {.hosts = GetParam()});
}

TEST_P(Stages, WhoeverMakesProgressItselfHasThemWhenItWaits) {
  run_stages(2, overlap_with_collectives, {.progress = Progress::manual, .transport = GetParam()});
}

TEST_P(Stages, ATransferGoesOnWithoutAThreadThatWaits) {
  run(2, [](Group& world, Group& own, bool sends, GroupRank peer) {
    const Tensor values =
        sends ? numbered(kValues, 1) : Tensor::zeros(DType::u16, Shape({kValues})).value();
    if (sends) {
      // The operation continues without its Completion.
      (void)send_to_stage_async(world, own, values, peer);
      return;
    }
    std::promise<Result<void>> told;
    recv_from_stage_async(world, own, values, peer).on_done([&](Result<void> done) {
      told.set_value(std::move(done));
    });
    EXPECT_TRUE(test::succeeds(told.get_future().get()));
    EXPECT_TRUE(equal(values, numbered(kValues, 1)));
  });
}

TEST_P(Stages, ACancelledReceiveEndsTheStageOfTheOthers) {
  run(2, [](Group& world, Group& own, bool sends, GroupRank peer) {
    const Tensor values = Tensor::zeros(DType::u16, Shape({kValues})).value();
    if (sends) return;
    auto receive = recv_from_stage_async(world, own, values, peer);
    if (own.rank().value == 0) receive.cancel();
    const auto done = receive.wait(kSoon);
    if (own.rank().value == 0)
      EXPECT_TRUE(test::fails_with(done, ErrorCode::cancelled, "cancelled"));
    else
      EXPECT_TRUE(test::fails_with(done, ErrorCode::group_aborted, "recv_from_stage"));
    EXPECT_FALSE(own.barrier(kSoon));
  });
}

TEST_P(Stages, AReceiveWhoseTimeIsOverNamesWhatIsMissing) {
  run(1, [](Group& world, Group& own, bool sends, GroupRank peer) {
    const Tensor values = Tensor::zeros(DType::u16, Shape({kValues})).value();
    if (sends) return;
    auto receive = recv_from_stage_async(world, own, values, peer);
    EXPECT_TRUE(is_pending(receive.wait(Deadline::now()).error()));
    receive.expire();
    EXPECT_TRUE(test::fails_with(receive.wait(kSoon), ErrorCode::timeout, "rank 0"));
  });
}

TEST_P(Stages, WrongArgumentsAreThisMembersAlone) {
  run(1, [](Group& world, Group& own, bool, GroupRank) {
    const Tensor values = Tensor::zeros(DType::f32, Shape({10})).value();
    for (const GroupRank peer : {world.rank(), GroupRank{2}}) {
      EXPECT_TRUE(test::fails_with(recv_from_stage_async(world, own, values, peer).wait(kSoon),
                                   ErrorCode::invalid_argument,
                                   "rank " + std::to_string(peer.value)));
      EXPECT_TRUE(test::fails_with(send_to_stage_async(world, own, values, peer).wait(kSoon),
                                   ErrorCode::invalid_argument,
                                   "rank " + std::to_string(peer.value)));
    }
    EXPECT_TRUE(own.barrier(kSoon));
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, Stages, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

}  // namespace
}  // namespace tendon
