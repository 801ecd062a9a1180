// SPDX-License-Identifier: Apache-2.0
// Blocks of several tensors whose members disagree on the layout: tensors begin at multiples of 64,
// so different blocks may have the same size.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "support/group_members.hpp"

namespace tendon {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

// Leaves a and b: 80 bytes with the padding between them, whatever the length of a up to 64 bytes.
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

/// An operation on this member's idea of a block.
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
      // A member that has what it needs learns about the mismatch from the next call.
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

// It does not matter how a block is cut into tensors, as long as each byte has its place.
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

class BlockPaths : public testing::TestWithParam<Transport> {
 protected:
  void run(std::uint32_t members, const std::function<void(Group&)>& body) const {
    test::run_members(members, [&](Context&, Group& group) { body(group); },
                      {.transport = GetParam()});
  }
};

Tensor counting(std::int64_t from, std::int64_t count) {
  const Tensor tensor = Tensor::empty(DType::f32, Shape({count})).value();
  for (float& element : tensor.span<float>()) element = static_cast<float>(from++);
  return tensor;
}

Tensor filled(std::int64_t count, std::uint8_t value) {
  const Tensor tensor = Tensor::empty(DType::u8, Shape({count})).value();
  for (std::uint8_t& element : tensor.span<std::uint8_t>()) element = value;
  return tensor;
}

void expect_twice(const Tensor& tensor, std::int64_t from) {
  for (const float element : tensor.span<const float>())
    ASSERT_EQ(element, 2 * static_cast<float>(from++));
}

TEST_P(BlockPaths, ReduceScatterOfTensorsThatAreCutInOtherWays) {
  run(2, [](Group& group) {
    std::vector<TensorDict> two(2);
    for (TensorDict& dict : two) {
      dict.set("first", counting(0, 16));
      dict.set("second", counting(16, 16));
    }
    const Tensor whole = Tensor::zeros(DType::f32, Shape({32})).value();
    const auto joined = group.reduce_scatter(two, whole, ReduceOp::sum, kSoon);
    ASSERT_TRUE(joined) << joined.error().message();
    expect_twice(whole, 0);

    const std::vector<Tensor> one = {counting(0, 32), counting(0, 32)};
    TensorDict parts;
    parts.set("first", Tensor::zeros(DType::f32, Shape({16})).value());
    parts.set("second", Tensor::zeros(DType::f32, Shape({16})).value());
    const auto cut = group.reduce_scatter(one, parts, ReduceOp::sum, kSoon);
    ASSERT_TRUE(cut) << cut.error().message();
    expect_twice(parts["first"], 0);
    expect_twice(parts["second"], 16);
  });
}

TEST_P(BlockPaths, ReduceScatterOfTensorsWithGapsThatNobodyElseKeeps) {
  run(2, [](Group& group) {
    for (const bool listed : {false, true}) {
      const Tensor output = Tensor::zeros(DType::f32, Shape({20'000})).value();
      Completion<void> completion = [&] {
        // Takes every other element, in rows.
        const Tensor wide = counting(0, 80'000);
        const Tensor all =
            Tensor::view(wide.storage(), 0, DType::f32, Shape({40'000}), Strides({2})).value();
        if (!listed) return group.reduce_scatter_async(all, output, ReduceOp::sum);
        std::vector<Tensor> halves;
        for (const std::uint64_t half : {0, 1}) {
          halves.push_back(Tensor::view(wide.storage(), half * 160'000, DType::f32, Shape({20'000}),
                                        Strides({2}))
                               .value());
        }
        return group.reduce_scatter_async(halves, output, ReduceOp::sum);
      }();
      const auto done = completion.wait(kSoon);
      ASSERT_TRUE(done) << done.error().message();
      float expected = group.rank().value == 0 ? 0 : 80'000;
      for (const float element : output.span<const float>()) {
        ASSERT_EQ(element, expected);
        expected += 4;
      }
    }
  });
}

TEST_P(BlockPaths, ReduceScatterOfABlockOfADtypeForEachMember) {
  run(2, [](Group& group) {
    const std::vector<Tensor> inputs = {Tensor::of<float>({2}, {1, 2}),
                                        Tensor::of<std::int32_t>({2}, {3, 4})};
    const bool first = group.rank().value == 0;
    const Tensor output = Tensor::zeros(first ? DType::f32 : DType::i32, Shape({2})).value();
    const auto done = group.reduce_scatter(inputs, output, ReduceOp::sum, kSoon);
    ASSERT_TRUE(done) << done.error().message();
    if (first)
      EXPECT_EQ(output.item<float>({1}), 4);
    else
      EXPECT_EQ(output.item<std::int32_t>({1}), 8);
  });
}

TEST_P(BlockPaths, LeavesWithoutElementsAndCutsBetweenTensors) {
  run(3, [](Group& group) {
    const bool root = group.rank().value == 0;
    TensorDict empty_last;
    empty_last.set("a", Tensor::of<float>({1}, {root ? 7.0f : 0.0f}));
    empty_last.set("z", Tensor::zeros(DType::f32, Shape({0})).value());
    auto done = group.broadcast(empty_last, GroupRank{0}, kSoon);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ(empty_last["a"].item<float>({0}), 7);
    const auto all = blocks(3, empty_last);
    done = group.all_gather(empty_last, all, kSoon);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ(all[2]["a"].item<float>({0}), 7);
    if (root) {
      for (const std::uint32_t to : {1, 2}) {
        done = group.send(empty_last, {GroupRank{to}}, kSoon);
        ASSERT_TRUE(done) << done.error().message();
        done = group.init_remote(empty_last, {GroupRank{to}}, kSoon);
        ASSERT_TRUE(done) << done.error().message();
      }
    } else {
      const auto received = group.recv(empty_last, {GroupRank{0}}, kSoon);
      ASSERT_TRUE(received) << received.error().message();
      const auto whole = group.from_remote_init({GroupRank{0}}, kSoon);
      ASSERT_TRUE(whole) << whole.error().message();
      EXPECT_EQ((*whole)["a"].item<float>({0}), 7);
    }
    // Pieces end at multiples of 1 MiB: here between the two tensors.
    for (const std::int64_t before : {1, 60}) {
      const std::vector<Tensor> cut = {filled((1 << 20) - before, root ? 3 : 0),
                                       filled(1, root ? 5 : 0)};
      done = group.broadcast(cut, GroupRank{0}, kSoon);
      ASSERT_TRUE(done) << done.error().message();
      EXPECT_EQ(cut[0].span<const std::uint8_t>().back(), 3);
      EXPECT_EQ(cut[1].item<std::uint8_t>({0}), 5);
    }
  });
}

// The sizes agree in the first piece, or one of them is zero.
TEST_P(BlockPaths, OfAnotherSizeAreAMismatchHereAndNow) {
  constexpr std::int64_t kMiB = 1 << 20;
  const std::vector<Tensor> none;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {2 * kMiB, kMiB}, {kMiB, 2 * kMiB}, {16, 0}, {0, 16}};
  const auto of = [](std::int64_t size) { return Tensor::zeros(DType::u8, Shape({size})).value(); };
  for (const auto& [gives, expects] : sizes) {
    SCOPED_TRACE(std::to_string(gives) + " for " + std::to_string(expects));
    const auto expect_mismatch = [](const Result<void>& done) {
      EXPECT_TRUE(test::fails_with(done, ErrorCode::mismatch, "bytes"));
    };
    const auto run_both = [&](const std::function<void(Group&)>& body) {
      test::run_members(2, [&](Context&, Group& group) { body(group); }, {.transport = GetParam()});
    };
    run_both([&](Group& group) {  // rank 1 is the root
      if (group.rank().value == 1) return (void)group.gather(of(gives), none, GroupRank{0}, kSoon);
      const std::vector<Tensor> into{of(8), of(expects)};
      expect_mismatch(group.gather(of(8), into, GroupRank{0}, kSoon));
    });
    run_both([&](Group& group) {
      const std::vector<Tensor> from{of(8), of(gives)};
      if (group.rank().value == 0) return (void)group.scatter(from, of(8), GroupRank{0}, kSoon);
      expect_mismatch(group.scatter(none, of(expects), GroupRank{0}, kSoon));
    });
    run_both([&](Group& group) {
      const bool is_giver = group.rank().value == 1;
      const std::vector<Tensor> from{of(is_giver ? gives : 8), of(8)};
      const std::vector<Tensor> into{of(8), of(is_giver ? 8 : expects)};
      const auto done = group.all_to_all(from, into, kSoon);
      if (!is_giver) expect_mismatch(done);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, BlockPaths, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

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

using Work = std::function<Result<void>(Group& group, bool is_first)>;

void expect_both_sides(const Work& work, std::string_view first, std::string_view second) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::run_members(
        2,
        [&](Context&, Group& group) {
          const bool is_first = group.rank().value == 0;
          const auto failed = work(group, is_first);
          ASSERT_FALSE(failed);
          EXPECT_EQ(failed.error().code, ErrorCode::mismatch);
          EXPECT_THAT(
              failed.error().detail,
              AllOf(ContainsRegex("rank 0 \\(member 0[^;]*\\) gave " + std::string(first)),
                    ContainsRegex("rank 1 \\(member 1[^;]*\\) gave " + std::string(second))));
        },
        {.transport = transport});
  }
}
Tensor f64(std::initializer_list<std::int64_t> shape) {
  return Tensor::zeros(DType::f64, Shape(shape)).value();
}

TEST(Mismatch, EachMemberIsShownBothShapes) {
  expect_both_sides(
      [](Group& group, bool is_first) {
        return group.all_reduce(is_first ? f64({2, 3}) : f64({3, 2}), ReduceOp::sum, kSoon);
      },
      "f64 \\[2, 3\\]", "f64 \\[3, 2\\]");
}

TEST(Mismatch, EachMemberIsShownTheLeavesOfBoth) {
  expect_both_sides(
      [](Group& group, bool is_first) {
        TensorDict dict;
        dict.set("net/weight", f64({4}));
        dict.set(is_first ? "net/bias" : "net/scale", f64({2}));
        return group.all_reduce(dict, ReduceOp::sum, kSoon);
      },
      R"("net/weight" f64 \[4\], "net/bias" f64 \[2\])",
      R"("net/weight" f64 \[4\], "net/scale" f64 \[2\])");
}

TEST(Mismatch, BothSidesOfOperationsWithoutOneShape) {
  expect_both_sides(
      [](Group& group, bool is_first) {
        if (is_first) return group.barrier(kSoon);
        return group.all_reduce(f64({3}), ReduceOp::sum, kSoon);
      },
      "no tensors", "f64 \\[3\\]");
  expect_both_sides(
      [](Group& group, bool is_first) {
        const std::vector<Tensor> parts{f64({2}), is_first ? f64({2, 3}) : f64({3, 3})};
        return group.reduce_scatter(parts, parts[group.rank().value], ReduceOp::sum, kSoon);
      },
      "f64 \\[2\\], f64 \\[2, 3\\]", "f64 \\[2\\], f64 \\[3, 3\\]");
}

// Rank 1 has passed its part, and is done or gets the error. Rank 0 still learns which tensors rank
// 1 passed.
TEST(Mismatch, AGiverThatIsDoneAnswers) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::run_members(
        2,
        [](Context&, Group& group) {
          const bool is_root = group.rank().value == 0;
          const std::vector<Tensor> outputs{f64({5}), f64({5})};
          const std::vector<Tensor> none;
          const auto done = group.gather(is_root ? f64({5}) : f64({2, 2}), is_root ? outputs : none,
                                         GroupRank{0}, kSoon);
          if (!is_root) {
            // Stays in the group, as a member of a job does.
            (void)group.barrier(kSoon);
            return;
          }
          ASSERT_FALSE(done);
          EXPECT_THAT(done.error().detail,
                      ContainsRegex("rank 1 \\(member 1[^;]*\\) gave f64 \\[2, 2\\]"));
        },
        {.transport = transport});
  }
}

TEST(Mismatch, SaysWhatToDo) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::run_members(
        2,
        [](Context&, Group& group) {
          const bool first = group.rank().value == 0;
          const Tensor tensor =
              Tensor::zeros(DType::f64, first ? Shape({2, 3}) : Shape({3, 2})).value();
          const auto failed = group.all_reduce(tensor, ReduceOp::sum, kSoon);
          ASSERT_FALSE(failed);
          EXPECT_THAT(failed.error().message(), HasSubstr("do: make the same call"));
        },
        {.transport = transport});
  }
}

}  // namespace
}  // namespace tendon
