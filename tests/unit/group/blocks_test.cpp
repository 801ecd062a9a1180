// SPDX-License-Identifier: Apache-2.0
// Blocks of several tensors whose members disagree on what lies where: tensors begin at multiples
// of 64, so blocks may differ and still be of one size.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "support/group_members.hpp"

namespace tendon {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

// Leaves a and b: 80 bytes with what is between them, whatever the length of a up to 64 bytes.
TensorDict block(std::int64_t length_of_a, DType dtype = DType::f32) {
  TensorDict dict;
  dict.set("a", Tensor::zeros(dtype, Shape({length_of_a})).value());
  dict.set("b", Tensor::zeros(DType::f32, Shape({4})).value());
  return dict;
}

std::vector<TensorDict> blocks(std::uint32_t count, const TensorDict& each) {
  std::vector<TensorDict> all;
  for (std::uint32_t i = 0; i < count; ++i)
    all.push_back(TensorDict::allocate(each.schema()).value());
  return all;
}

/// An operation, given what this member takes a block for.
struct Case {
  const char* name;
  std::function<Result<void>(Group&, const TensorDict& mine)> call;
};

const Case kCases[] = {
    {"all_gather",
     [](Group& group, const TensorDict& mine) {
       return group.all_gather(mine, blocks(group.size(), mine), kSoon);
     }},
    {"gather",
     [](Group& group, const TensorDict& mine) {
       return group.gather(mine, blocks(group.size(), mine), GroupRank{1}, kSoon);
     }},
    {"scatter",
     [](Group& group, const TensorDict& mine) {
       return group.scatter(blocks(group.size(), mine), mine, GroupRank{1}, kSoon);
     }},
    {"reduce_scatter",
     [](Group& group, const TensorDict& mine) {
       return group.reduce_scatter(blocks(group.size(), mine), mine, ReduceOp::sum, kSoon);
     }},
    {"all_to_all",
     [](Group& group, const TensorDict& mine) {
       return group.all_to_all(blocks(group.size(), mine), blocks(group.size(), mine), kSoon);
     }},
};

class Blocks : public testing::TestWithParam<std::tuple<std::size_t, Transport>> {
 protected:
  void run(const std::function<void(Group&, const Case&)>& body) const {
    const Case& tested = kCases[std::get<0>(GetParam())];
    test::run_members(3, [&](Context&, Group& group) { body(group, tested); },
                      {.transport = std::get<1>(GetParam())});
  }
};

TEST_P(Blocks, OfOneSizeWithLeavesOfOtherSizesAreAMismatch) {
  for (const bool of_dtype : {false, true}) {
    run([&](Group& group, const Case& tested) {
      const auto alike = tested.call(group, block(8));
      ASSERT_TRUE(alike) << alike.error().message();
      const bool differs = group.rank().value == 2;
      const TensorDict mine =
          of_dtype ? block(8, differs ? DType::i32 : DType::f32) : block(differs ? 3 : 8);
      auto found = tested.call(group, mine);
      // Whoever has what it needs hears of it from the next call.
      if (found) found = group.barrier(kSoon);
      ASSERT_FALSE(found);
      EXPECT_THAT(found.error().code, testing::AnyOf(ErrorCode::mismatch, ErrorCode::group_aborted))
          << found.error().message();
      EXPECT_THAT(found.error().detail, HasSubstr("rank 2")) << found.error().message();
      ASSERT_TRUE(group.shrink(kSoon));
      const auto again = tested.call(group, block(3));
      EXPECT_TRUE(again) << again.error().message();
    });
  }
}

// How a block is cut into tensors does not matter, as long as each byte has its place.
TEST_P(Blocks, OneTensorIsAsGoodAsSeveralWithoutGaps) {
  run([](Group& group, const Case& tested) {
    TensorDict mine;
    if (group.rank().value == 0) {
      mine.set("all", Tensor::zeros(DType::f32, Shape({32})).value());
    } else {
      mine.set("first", Tensor::zeros(DType::f32, Shape({4, 4})).value());
      mine.set("second", Tensor::zeros(DType::f32, Shape({16})).value());
    }
    const auto done = tested.call(group, mine);
    EXPECT_TRUE(done) << done.error().message();
  });
}

INSTANTIATE_TEST_SUITE_P(Operations, Blocks,
                         testing::Combine(testing::Range<std::size_t>(0, std::size(kCases)),
                                          testing::Values(Transport::automatic, Transport::tcp)),
                         [](const auto& tested) {
                           return std::string(kCases[std::get<0>(tested.param)].name) +
                                  (std::get<1>(tested.param) == Transport::tcp ? "_tcp" : "_shm");
                         });

TEST(BlocksOfOneMember, InputAndOutputAreAlike) {
  test::run_members(1, [](Context&, Group& group) {
    for (const TensorDict& other : {block(3), block(8, DType::i32)}) {
      const auto refused = group.all_gather(block(8), blocks(1, other), kSoon);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    }
    const auto sizes = group.all_gather(block(8), blocks(1, block(3)), kSoon);
    ASSERT_FALSE(sizes);
    EXPECT_THAT(sizes.error().detail, HasSubstr("has 28 bytes, needed are 48"));
  });
}

// Sizes and hashes travel, so each member says what it gave.
TEST(Mismatch, EachMemberAddsItsShape) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::run_members(
        2,
        [](Context&, Group& group) {
          const bool first = group.rank().value == 0;
          const Tensor tensor =
              Tensor::zeros(DType::f64, first ? Shape({2, 3}) : Shape({3, 2})).value();
          const auto failed = group.all_reduce(tensor, ReduceOp::sum, kSoon);
          ASSERT_FALSE(failed);
          EXPECT_THAT(failed.error().detail,
                      HasSubstr(first ? "rank 0 (member 0" : "rank 1 (member 1"));
          EXPECT_THAT(failed.error().detail,
                      HasSubstr(first ? "gave f64 [2, 3]" : "gave f64 [3, 2]"));
          EXPECT_THAT(failed.error().message(), HasSubstr("do: make the same call"));
        },
        {.transport = transport});
  }
}

}  // namespace
}  // namespace tendon
