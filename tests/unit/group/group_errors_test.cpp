// SPDX-License-Identifier: Apache-2.0
// The errors that members get, and how they continue.
#include <gmock/gmock.h>

#include <array>
#include <condition_variable>
#include <future>
#include <latch>
#include <map>
#include <tendon/pipe/listener.hpp>

#include "support/group_members.hpp"
#include "support/map_store.hpp"
#include "support/storage_on_gpu.hpp"

namespace tendon {
namespace {

using test::run_members;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

class GroupErrors : public testing::TestWithParam<Transport> {
 protected:
  void run(std::uint32_t members, const std::function<void(Context&, Group&)>& body) const {
    run_members(members, body, {.transport = GetParam()});
  }
};

TEST_P(GroupErrors, AnotherOperationIsADiagnosisOnBothSides) {
  run(2, [](Context&, Group& group) {
    const Tensor tensor = Tensor::of<float>({4}, {1, 2, 3, 4});
    const auto failed = group.rank().value == 0 ? group.all_reduce(tensor, ReduceOp::sum, kSoon)
                                                : group.broadcast(tensor, GroupRank{0}, kSoon);
    // The broadcast's root may have what it needs before it learns about the mismatch.
    const auto heard = failed ? group.barrier(kSoon) : failed;
    ASSERT_FALSE(heard);
    EXPECT_THAT(heard.error().detail, AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"),
                                            HasSubstr("all_reduce #1"), HasSubstr("broadcast #1")));
    ASSERT_TRUE(group.shrink(kSoon));
    EXPECT_EQ(group.size(), 2u);
    EXPECT_EQ(group.epoch(), 2u);
    const auto again = group.all_reduce(tensor, ReduceOp::max, kSoon);
    EXPECT_TRUE(again) << again.error().message();
  });
}

TEST_P(GroupErrors, OtherShapesDtypesSizesAndReductionsAreNamed) {
  run(2, [](Context&, Group& group) {
    const bool first = group.rank().value == 0;
    struct Difference {
      Tensor tensor;
      ReduceOp op;
    };
    const std::vector<Difference> differences = {
        {Tensor::zeros(first ? DType::f32 : DType::i32, Shape({4})).value(), ReduceOp::sum},
        {Tensor::zeros(DType::f32, Shape({first ? 4 : 5})).value(), ReduceOp::sum},
        {Tensor::zeros(DType::f32, first ? Shape({2, 3}) : Shape({3, 2})).value(), ReduceOp::sum},
        {Tensor::zeros(DType::f32, Shape({first ? 70'000 : 70'001})).value(), ReduceOp::sum},
        {Tensor::zeros(DType::f32, Shape({4})).value(), first ? ReduceOp::sum : ReduceOp::max}};
    for (const auto& [tensor, op] : differences) {
      const auto failed = group.all_reduce(tensor, op, kSoon);
      ASSERT_FALSE(failed);
      EXPECT_EQ(failed.error().code, ErrorCode::mismatch);
      EXPECT_THAT(failed.error().detail, AllOf(HasSubstr("rank 0"), HasSubstr("rank 1")));
      ASSERT_TRUE(group.shrink(kSoon));
    }
  });
}

TEST_P(GroupErrors, DictsWithOtherNamesOrAnotherOrderOfThemAreNotMixed) {
  run(2, [](Context&, Group& group) {
    const bool first = group.rank().value == 0;
    const std::array<std::array<std::string_view, 2>, 3> names = {
        {{"weight", "bias"},
         {first ? "weight" : "bias", first ? "bias" : "weight"},
         {"a name of more than one word 1", first ? "the last byte is 1" : "the last byte is 2"}}};
    bool alike = true;  // only in the first
    for (const auto& [one, other] : names) {
      TensorDict dict;
      dict.set(one, Tensor::zeros(DType::f32, Shape({4})).value());
      dict.set(other, Tensor::zeros(DType::f32, Shape({4})).value());
      const auto done = group.all_reduce(dict, ReduceOp::sum, kSoon);
      if (std::exchange(alike, false)) {
        EXPECT_TRUE(done) << done.error().message();
        continue;
      }
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error().code, ErrorCode::mismatch);
      EXPECT_THAT(done.error().detail, HasSubstr("names"));
      ASSERT_TRUE(group.shrink(kSoon));
    }
  });
}

TEST_P(GroupErrors, AMemberThatDoesNotComeIsNamed) {
  std::promise<void> over;
  auto waits = over.get_future().share();
  std::atomic<int> left{2};
  std::atomic<int> timeouts{0};
  run(3, [&](Context&, Group& group) {
    if (group.rank().value == 1) {
      waits.wait();
      // The words of the others before their timeout may be enough for the first call.
      auto late = group.monitored_barrier(kSoon);
      if (late) late = group.monitored_barrier(kSoon);
      ASSERT_FALSE(late);
      // The first error itself arrives when it is received in the middle of the call.
      EXPECT_THAT(late.error().code, testing::AnyOf(ErrorCode::group_aborted, ErrorCode::timeout));
      return;
    }
    const auto failed = group.monitored_barrier(2s);
    ASSERT_FALSE(failed);
    // The member that times out second may learn about the first.
    EXPECT_THAT(failed.error().code, testing::AnyOf(ErrorCode::timeout, ErrorCode::group_aborted));
    timeouts += failed.error().code == ErrorCode::timeout ? 1 : 0;
    EXPECT_THAT(failed.error().detail,
                AllOf(HasSubstr("rank 1"), testing::Not(HasSubstr("waits for rank 0"))));
    if (--left == 0) over.set_value();
  });
  EXPECT_GE(timeouts, 1);
}

TEST_P(GroupErrors, WhatAnArgumentLacksIsSaidAtOnce) {
  run(2, [](Context&, Group& group) {
    const Tensor flags = Tensor::zeros(DType::boolean, Shape({4})).value();
    auto failed = group.all_reduce(flags, ReduceOp::avg, kSoon);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::unsupported_dtype);
    failed = group.broadcast(flags, GroupRank{2}, kSoon);
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().detail, HasSubstr("ranks are 0 to 1"));
    failed = group.all_gather(flags, Tensor::zeros(DType::boolean, Shape({7})).value(), kSoon);
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().detail, HasSubstr("2 equal blocks"));
    static const std::byte kMemory[4] = {};
    const Tensor constant =
        Tensor::view(Storage(nullptr, const_cast<std::byte*>(kMemory), 4, Access::read_only), 0,
                     DType::i32, Shape({1}))
            .value();
    failed = group.all_reduce(constant, ReduceOp::sum, kSoon);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::read_only);
    const Tensor on_gpu = Tensor::view(test::storage_on_gpu(8), 0, DType::i32, Shape({2})).value();
    const Tensor fresh = Tensor::zeros(DType::i32, Shape({2})).value();
    for (const Result<void>& refused :
         {group.all_reduce(on_gpu, ReduceOp::sum, kSoon),
          group.all_reduce(std::vector<Tensor>{fresh, on_gpu}, ReduceOp::sum, kSoon),
          group.broadcast(on_gpu, GroupRank{0}, kSoon),
          group.all_gather(on_gpu, std::vector<Tensor>{fresh, fresh}, kSoon),
          group.send(on_gpu, {GroupRank{1 - group.rank().value}}, kSoon)}) {
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::unsupported_device);
      EXPECT_THAT(refused.error().detail, HasSubstr("cuda:0"));
    }
    // Nothing was consumed: the group continues.
    EXPECT_TRUE(group.barrier(kSoon));
  });
}

TEST_P(GroupErrors, AbortEndsWhatIsPendingEverywhere) {
  run(3, [](Context&, Group& group) {
    if (group.rank().value == 2) return group.abort("the disk is full");
    const auto failed = group.barrier(kSoon);
    ASSERT_FALSE(failed);
    EXPECT_THAT(failed.error().detail, AllOf(HasSubstr("rank 2"), HasSubstr("the disk is full")));
  });
}

TEST_P(GroupErrors, TwoDeathsOneAfterTheOther) {
  // A shrink that has not ended for all members may also cover the second death.
  std::latch first_shrink(3);
  run(4, [&](Context& context, Group& group) {
    const std::uint32_t me = group.rank().value;
    ASSERT_TRUE(group.barrier(kSoon));
    for (const std::uint32_t dying : {3u, 0u}) {
      if (me == dying) return (void)context.close(1s);
      EXPECT_TRUE(test::fails_with(group.barrier(kSoon), ErrorCode::peer_lost,
                                   "member " + std::to_string(dying)));
      const auto shrunk = group.shrink(kSoon);
      if (dying == 3u) first_shrink.arrive_and_wait();
      ASSERT_TRUE(shrunk) << shrunk.error().message();
    }
    EXPECT_EQ(group.size(), 2u);
    EXPECT_EQ(group.members()[group.rank().value].place, me);
    const Tensor one = Tensor::of<std::int64_t>({1}, {1});
    ASSERT_TRUE(group.all_reduce(one, ReduceOp::sum, kSoon));
    EXPECT_EQ(one.item<std::int64_t>({0}), 2);
  });
}

TEST_P(GroupErrors, WhoLeavesInOrderTakesNothingFromTheOthers) {
  for (int again = 0; again < 20; ++again) {
    run(3, [](Context&, Group& group) {
      const Tensor one = Tensor::of<std::int64_t>({1}, {1});
      const auto done = group.all_reduce(one, ReduceOp::sum, kSoon);
      ASSERT_TRUE(done) << done.error().message();
      EXPECT_EQ(one.item<std::int64_t>({0}), 3);
    });
  }
}

TEST_P(GroupErrors, WhatWasSentByWhoHasLeftSinceIsReceived) {
  for (int again = 0; again < 5; ++again) {
    run(2, [](Context&, Group& group) {
      const std::int64_t count = 2 << 20;  // more than a socket holds
      const Tensor tensor = Tensor::zeros(DType::i64, Shape({count})).value();
      if (group.rank().value == 0) {
        for (std::int64_t& element : tensor.span<std::int64_t>()) element = 7;
        const auto sent = group.send(tensor, {GroupRank{1}}, kSoon);
        EXPECT_TRUE(sent) << sent.error().message();
        return;
      }
      const auto received = group.recv(tensor, {GroupRank{0}}, kSoon);
      ASSERT_TRUE(received) << received.error().message();
      for (const std::int64_t element : tensor.span<const std::int64_t>()) ASSERT_EQ(element, 7);
    });
  }
}

// A member that takes itself for the root waits for nobody, so it learns about the mismatch from
// the next call.
TEST_P(GroupErrors, EverybodyItsOwnRootIsFoundByTheNextCall) {
  for (const bool reduces : {false, true}) {
    run(3, [&](Context&, Group& group) {
      const Tensor tensor = Tensor::of<float>({2}, {1, 2});
      for (int again = 0; again < 2; ++again)
        ASSERT_TRUE(group.all_reduce(tensor, ReduceOp::sum, kSoon));
      const GroupRank me = group.rank();
      const GroupRank next{(me.value + 1) % 3};
      // Others may have found the mismatch before this member completes this call.
      auto found = group.all_reduce(tensor, ReduceOp::sum, kSoon);
      // No member reads what the others show; over links a reduce may learn about it at once.
      if (found)
        found = reduces ? group.reduce(tensor, ReduceOp::sum, next, kSoon)
                        : group.broadcast(tensor, me, kSoon);
      if (found) found = group.all_reduce(tensor, ReduceOp::sum, kSoon);
      ASSERT_FALSE(found);
      EXPECT_THAT(found.error().code, AnyOf(ErrorCode::mismatch, ErrorCode::group_aborted));
      EXPECT_THAT(found.error().detail, HasSubstr("root")) << found.error().detail;
    });
  }
}

TEST_P(GroupErrors, SplitByLists) {
  run(4, [](Context&, Group& group) {
    const std::uint32_t me = group.rank().value;
    const std::vector<GlobalRank> mine = {GlobalRank{me % 2}, GlobalRank{me % 2 + 2}};
    auto half = group.split(mine, kSoon, "half");
    ASSERT_TRUE(half) << half.error().message();
    EXPECT_EQ(half->size(), 2u);
    EXPECT_EQ(half->rank().value, me / 2);
    const Tensor tensor = Tensor::of<std::int64_t>({1}, {me});
    ASSERT_TRUE(half->all_reduce(tensor, ReduceOp::sum, kSoon));
    EXPECT_EQ(tensor.item<std::int64_t>({0}), 2 * (me % 2) + 2);
    const std::vector<GlobalRank> wrong = {GlobalRank{me}, GlobalRank{(me + 1) % 4}};
    const auto refused = group.split(wrong, kSoon);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::mismatch);
    ASSERT_TRUE(group.barrier(kSoon));
  });
}

// In a subgroup a process has another place, and another rank, than in the whole job.
TEST_P(GroupErrors, SplitOfASubgroupNamesProcessesOfTheWholeJob) {
  run(4, [](Context&, Group& group) {
    const std::uint32_t me = group.rank().value;
    if (me != 0) {
      auto some = group.subgroup(std::array{GroupRank{3}, GroupRank{1}, GroupRank{2}}, kSoon);
      ASSERT_TRUE(some) << some.error().message();
      const std::vector<GlobalRank> odd = {GlobalRank{1}, GlobalRank{3}};
      const std::vector<GlobalRank> even = {GlobalRank{2}};
      auto half = some->split(me == 2 ? even : odd, kSoon);
      ASSERT_TRUE(half) << half.error().message();
      EXPECT_EQ(half->size(), me == 2 ? 1u : 2u);
      EXPECT_EQ(half->rank().value, me == 3 ? 1u : 0u);
      const auto refused = some->split(std::array{GlobalRank{0}}, kSoon);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
      EXPECT_THAT(refused.error().detail, HasSubstr("global rank 0 is not in group"));
    }
    ASSERT_TRUE(group.barrier(kSoon));
  });
}

TEST_P(GroupErrors, MessagesByRankAndTag) {
  run(3, [](Context&, Group& group) {
    const std::uint32_t me = group.rank().value;
    const std::uint32_t next = (me + 1) % 3;
    const std::uint32_t before = (me + 2) % 3;
    for (const std::int64_t count : {0, 1, 5000, 500'000}) {
      const Tensor out = Tensor::zeros(DType::i64, Shape({count})).value();
      for (std::int64_t& element : out.span<std::int64_t>()) element = me;
      const Tensor in = Tensor::zeros(DType::i64, Shape({count})).value();
      auto sent = group.send_async(out, {GroupRank{next}, 7});
      auto early = group.send_async(Tensor::of<float>({1}, {1}), {GroupRank{next}, 8});
      // Received by tag, not in the order of arrival.
      const Tensor one = Tensor::of<float>({1}, {0});
      ASSERT_TRUE(group.recv(one, {GroupRank{before}, 8}, kSoon));
      const auto received = group.recv(in, {.tag = 7}, kSoon);
      ASSERT_TRUE(received) << received.error().message();
      EXPECT_EQ(received->rank.value, before);
      for (const std::int64_t element : in.span<const std::int64_t>()) ASSERT_EQ(element, before);
      ASSERT_TRUE(sent.wait(kSoon));
      ASSERT_TRUE(early.wait(kSoon));
    }
    ASSERT_TRUE(group.barrier(kSoon));
  });
}

TEST_P(GroupErrors, AMessageOfAnotherSizeStaysAndIsNamed) {
  run(2, [](Context&, Group& group) {
    if (group.rank().value == 0) {
      ASSERT_TRUE(group.send(Tensor::of<float>({3}, {1, 2, 3}), {GroupRank{1}}, kSoon));
      ASSERT_TRUE(group.barrier(kSoon));
      return;
    }
    const auto wrong = group.recv(Tensor::of<float>({2}, {0, 0}), {GroupRank{0}}, kSoon);
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().code, ErrorCode::mismatch);
    EXPECT_THAT(wrong.error().detail, AllOf(HasSubstr("12 bytes"), HasSubstr("f32 [2]")));
    const Tensor right = Tensor::of<float>({3}, {0, 0, 0});
    ASSERT_TRUE(group.recv(right, {GroupRank{0}}, kSoon));
    EXPECT_EQ(right.item<float>({2}), 3);
    ASSERT_TRUE(group.barrier(kSoon));
  });
}

TEST_P(GroupErrors, AReceiverThatKnowsNothingGetsTheWholeDict) {
  run(3, [](Context&, Group& group) {
    TensorDict batch;
    batch.set("image", Tensor::of<std::uint8_t>({2, 2}, {1, 2, 3, 4}));
    batch.set("nested/scale", Tensor::of<double>({}, {2.5}));
    batch.set("name", "frame 7");
    if (group.rank().value == 0) {
      ASSERT_TRUE(group.init_remote(batch, {GroupRank{1}}, kSoon));
    } else if (group.rank().value == 1) {
      const auto received = group.from_remote_init({}, kSoon);
      ASSERT_TRUE(received) << received.error().message();
      EXPECT_TRUE(bitwise_equal(*received, batch));
    }
    const auto shared =
        group.broadcast_init(group.rank().value == 2 ? batch : TensorDict(), GroupRank{2}, kSoon);
    ASSERT_TRUE(shared) << shared.error().message();
    EXPECT_TRUE(bitwise_equal(*shared, batch));
    ASSERT_TRUE(group.barrier(kSoon));
  });
}

TEST_P(GroupErrors, AReceiveFromTheDeadEnds) {
  run(2, [](Context& context, Group& group) {
    ASSERT_TRUE(group.barrier(kSoon));
    if (group.rank().value == 1) return (void)context.close(1s);
    const auto failed = group.recv(Tensor::of<float>({1}, {0}), {GroupRank{1}}, kSoon);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::peer_lost) << failed.error().message();
  });
}

TEST_P(GroupErrors, AClosedContextIsSaid) {
  run(1, [](Context& context, Group& group) {
    ASSERT_TRUE(group.barrier(kSoon));
    ASSERT_TRUE(context.close(1s));
    const auto failed = group.barrier(kSoon);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::context_closed);
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, GroupErrors, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

// The result of writing one memory twice would depend on the algorithm.
TEST(Arguments, ResultsInOneMemoryAreRefused) {
  Context context = Context::create().value();
  Group group = Group::join(context, Rendezvous::at("unix:@x", GroupRank{0}, 1), kSoon).value();
  const auto fresh = [] { return Tensor::zeros(DType::f32, Shape({8, 8})).value(); };
  const Tensor tied = fresh();
  const std::vector<Tensor> twice{fresh(), tied, tied};
  EXPECT_TRUE(test::fails_with(group.all_reduce(twice, ReduceOp::sum, kSoon),
                               ErrorCode::overlapping, "'2' shares memory with leaf '1'"));
  TensorDict dict;
  dict.set("w", tied);
  const std::vector<TensorDict> dicts{dict, dict};
  EXPECT_EQ(group.all_reduce(dicts, ReduceOp::sum, kSoon).error().code, ErrorCode::overlapping);
  // Rows that interleave share nothing; one column that stands for eight does.
  const Tensor even =
      Tensor::view(tied.storage(), 0, DType::f32, Shape({4, 8}), Strides({16, 1})).value();
  const Tensor odd =
      Tensor::view(tied.storage(), 32, DType::f32, Shape({4, 8}), Strides({16, 1})).value();
  const std::vector<Tensor> rows{even, odd};
  EXPECT_TRUE(group.all_reduce(rows, ReduceOp::sum, kSoon));
  const Tensor column =
      Tensor::view(tied.storage(), 0, DType::f32, Shape({8, 8}), Strides({1, 0})).value();
  EXPECT_EQ(group.all_reduce(column, ReduceOp::sum, kSoon).error().code, ErrorCode::overlapping);
  // Inputs that are only read may share memory.
  EXPECT_TRUE(group.all_gather(tied, std::vector<Tensor>{fresh()}, kSoon));
}

TEST(Arguments, ErrorsNameTheTensorByItsPlaceInTheList) {
  Context context = Context::create().value();
  Group group = Group::join(context, Rendezvous::at("unix:@x", GroupRank{0}, 1), kSoon).value();
  const Tensor good = Tensor::zeros(DType::f32, Shape({4})).value();
  const Tensor empty = Tensor::zeros(DType::f32, Shape({0})).value();
  alignas(4) static constexpr std::byte kMemory[4] = {};
  const Tensor read_only =
      Tensor::view(Storage(nullptr, const_cast<std::byte*>(kMemory), 4, Access::read_only), 0,
                   DType::f32, Shape({1}))
          .value();
  const std::vector<Tensor> list{empty, good, read_only};
  EXPECT_TRUE(test::fails_with(group.all_reduce(list, ReduceOp::sum, kSoon), ErrorCode::read_only,
                               "tensor 2 "));
}

// Joining

Result<Group> join_alone(Context& context, const std::string& address, std::uint32_t rank,
                         std::uint32_t size, Deadline deadline) {
  return Group::join(context, Rendezvous::at(address, GroupRank{rank}, size), deadline);
}

TEST(Join, NobodyAnswers) {
  Context context = Context::create().value();
  const std::string address = test::fresh_group_address();
  auto group = join_alone(context, address, 1, 2, 100ms);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::timeout);
  EXPECT_THAT(group.error().detail, HasSubstr("nobody answered at " + address));
  group = join_alone(context, address, 0, 3, 100ms);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::timeout);
  EXPECT_THAT(group.error().detail, HasSubstr("rank 1, 2 of 3 did not come"));
}

TEST(Join, WhoCameAndHasGoneIsNamedToo) {
  const std::string address = test::fresh_group_address();
  std::thread first([&] {
    Context context = Context::create({.name = "impatient"}).value();
    EXPECT_TRUE(test::fails_with(join_alone(context, address, 1, 3, 4s), ErrorCode::timeout,
                                 "still waits for other members"));
  });
  Context context = Context::create().value();
  const auto group = join_alone(context, address, 0, 3, 12s);
  EXPECT_TRUE(test::fails_with(group, ErrorCode::timeout, "rank 2 of 3 did not come"));
  EXPECT_TRUE(test::fails_with(group, ErrorCode::timeout, "rank 1 (impatient"));
  EXPECT_TRUE(test::fails_with(group, ErrorCode::timeout, "came and has gone again"));
  first.join();
}

TEST(Join, WhoGoesBeforeAllAreThereEndsIt) {
  const std::string address = test::fresh_group_address();
  std::promise<void> gone;
  std::thread impatient([&] {
    {
      Context context = Context::create({.name = "impatient"}).value();
      EXPECT_TRUE(test::fails_with(join_alone(context, address, 2, 4, 2s), ErrorCode::timeout,
                                   "still waits for other members"));
    }
    gone.set_value();
  });
  // Each of the others learns why, and none waits until its deadline.
  constexpr auto kNever = 300s;
  std::vector<std::thread> others;
  for (const std::uint32_t rank : {1u, 3u}) {
    others.emplace_back([&, rank] {
      Context context = Context::create().value();
      if (rank == 3) gone.get_future().wait();
      const auto group = join_alone(context, address, rank, 4, kNever);
      EXPECT_TRUE(test::fails_with(group, ErrorCode::peer_lost, "rank 0"));
      EXPECT_TRUE(test::fails_with(group, ErrorCode::peer_lost, "has given up: rank 2 (impatient"));
    });
  }
  {
    Context context = Context::create().value();
    const auto group = join_alone(context, address, 0, 4, kNever);
    EXPECT_TRUE(test::fails_with(group, ErrorCode::peer_lost, "rank 2 (impatient"));
    EXPECT_TRUE(test::fails_with(group, ErrorCode::peer_lost, "came and has gone again"));
  }
  for (std::thread& other : others) other.join();
  impatient.join();
}

TEST(Join, RanksAndSizesOutOfRange) {
  Context context = Context::create().value();
  EXPECT_EQ(join_alone(context, "unix:@x", 2, 2, 1s).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(join_alone(context, "unix:@x", 0, 0, 1s).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(join_alone(context, "unix:@x", 0, 257, 1s).error().code, ErrorCode::invalid_argument);
}

TEST(Join, APortInUseIsNamed) {
  Context first = Context::create().value();
  Context second = Context::create().value();
  const std::string address = test::fresh_group_address();
  const Listener holder = Listener::bind(first, address).value();
  const auto group = join_alone(second, address, 0, 2, kSoon);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, ErrorCode::address_in_use) << group.error().message();
  EXPECT_THAT(group.error().detail, HasSubstr("rank 0"));
}

TEST(Join, TwoProcessesWithOneRankAndOtherSizes) {
  const std::string address = test::fresh_group_address();
  Context host = Context::create().value();
  Context right = Context::create({.name = "right"}).value();
  Context wrong = Context::create({.name = "wrong"}).value();
  std::thread zero([&] {
    auto group = join_alone(host, address, 0, 3, 30s);
    ASSERT_TRUE(group) << group.error().message();
    EXPECT_TRUE(group->barrier(kSoon));
  });
  std::thread one([&] {
    auto group = join_alone(right, address, 1, 3, 30s);
    ASSERT_TRUE(group) << group.error().message();
    EXPECT_TRUE(group->barrier(kSoon));
  });
  auto other_size = join_alone(wrong, address, 1, 4, 30s);
  ASSERT_FALSE(other_size);
  EXPECT_EQ(other_size.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(other_size.error().detail, AllOf(HasSubstr("4 members"), HasSubstr("rank 0 says 3")));
  const auto zero_again = join_alone(wrong, address, 0, 3, 200ms);
  ASSERT_FALSE(zero_again);
  // Rank 1 has joined after rank 2 was admitted beside it; before that it may still be on its way.
  Context last = Context::create().value();
  std::thread two([&] {
    auto group = join_alone(last, address, 2, 3, 30s);
    ASSERT_TRUE(group) << group.error().message();
    const auto twice = join_alone(wrong, address, 2, 3, 3s);
    ASSERT_FALSE(twice);
    EXPECT_THAT(twice.error().detail, HasSubstr("two processes are rank 2"));
    EXPECT_TRUE(group->barrier(kSoon));
  });
  for (std::thread* thread : {&zero, &one, &two}) thread->join();
}

TEST(Join, AloneNeedsNobody) {
  Context context = Context::create().value();
  auto group = join_alone(context, "", 0, 1, 1s);
  ASSERT_TRUE(group) << group.error().message();
  const Tensor tensor = Tensor::of<float>({2}, {1, 2});
  EXPECT_TRUE(group->all_reduce(tensor, ReduceOp::avg, 1s));
  EXPECT_EQ(tensor.item<float>({1}), 2);
}

TEST(Join, ThroughAStore) {
  auto store = std::make_shared<test::MapStore>();
  std::vector<std::thread> members;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    members.emplace_back([&, rank] {
      Context context = Context::create().value();
      auto group = Group::join(context, Rendezvous::through(store, GroupRank{rank}, 2), kSoon);
      ASSERT_TRUE(group) << group.error().message();
      EXPECT_TRUE(group->barrier(kSoon));
    });
  }
  for (std::thread& member : members) member.join();
}

}  // namespace
}  // namespace tendon
