// SPDX-License-Identifier: Apache-2.0
// Every collective against a plain reference, by path and number of members.
#include <gmock/gmock.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <random>

#include "support/group_members.hpp"

namespace tendon {
namespace {

using test::run_members;
using namespace std::chrono_literals;
using Ints = std::vector<std::int64_t>;

constexpr auto kSoon = 30s;

struct Case {
  Transport transport;
  std::uint32_t members;
  std::string hosts = {};  // a letter for each member
};

class Collectives : public testing::TestWithParam<Case> {
 protected:
  void run(const std::function<void(Context&, Group&)>& body) const {
    if (!GetParam().hosts.empty() && !test::may_name_hosts())
      GTEST_SKIP() << "no UTS namespace of its own can be made here";
    run_members(GetParam().members, body,
                {.transport = GetParam().transport, .hosts = GetParam().hosts});
  }
};

// The value of `rank` at `index`: small, so that sums of any dtype are exact.
std::int32_t value_of(std::uint32_t rank, std::int64_t index) {
  return static_cast<std::int32_t>((index * 7 + rank * 3) % 5);
}

Tensor filled(std::uint32_t rank, std::int64_t count, std::int64_t begin = 0) {
  Tensor tensor = Tensor::empty(DType::i32, Shape({count})).value();
  std::int64_t index = begin;
  for (std::int32_t& element : tensor.span<std::int32_t>()) element = value_of(rank, index++);
  return tensor;
}

std::int32_t sum_at(std::uint32_t members, std::int64_t index) {
  std::int32_t sum = 0;
  for (std::uint32_t rank = 0; rank < members; ++rank) sum += value_of(rank, index);
  return sum;
}

template <class F>
void expect_elements(const Tensor& tensor, F expected) {
  std::int64_t index = 0;
  for (const std::int32_t element : tensor.span<const std::int32_t>()) {
    const std::int32_t wanted = expected(index++);
    if (element == wanted) continue;  // an assertion for each is slow under sanitizers
    ASSERT_EQ(element, wanted) << "element " << index - 1 << " of " << tensor.element_count();
  }
}

// Small tensors in pools are read in place too, without a trial: the test covers the path, not the
// size. Set before main(), because the table is read once.
[[maybe_unused]] const bool kPullsSmallOnes =
    setenv("TENDON_COLLECTIVES", "pull_min=65536,staging=cached", 0) == 0;

// Counts around the limits of lines, slots, pieces and shares.
const Ints kCounts = {0, 1, 2, 24, 25, 1000, 2048, 4096, 65'536, 65'537, 200'001};

#define EXPECT_DONE(call)                        \
  do {                                           \
    const auto done = call;                      \
    ASSERT_TRUE(done) << done.error().message(); \
  } while (false)

TEST_P(Collectives, AllReduce) {
  run([](Context&, Group& group) {
    for (const std::int64_t count : kCounts) {
      const Tensor tensor = filled(group.rank().value, count);
      EXPECT_DONE(group.all_reduce(tensor, ReduceOp::sum, kSoon));
      expect_elements(tensor, [&](auto i) { return sum_at(group.size(), i); });
    }
  });
}

void all_reduce_from_pool(Context& context, Group& group, std::int64_t count,
                          std::uint32_t private_rank) {
  const auto bytes = static_cast<std::uint64_t>(count) * 4;
  const Storage memory = group.rank().value == private_rank
                             ? Storage::allocate(bytes).value()
                             : context.pool().allocate(bytes).value();
  const Tensor tensor = Tensor::view(memory, 0, DType::i32, Shape({count})).value();
  for (int again = 0; again < 2; ++again) {
    std::memcpy(memory.data(), filled(group.rank().value, count).data(), bytes);
    EXPECT_DONE(group.all_reduce(tensor, ReduceOp::sum, kSoon));
    // value_of() repeats every 5 elements.
    std::array<std::int32_t, 5> sums{};
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = sum_at(group.size(), static_cast<std::int64_t>(i));
    expect_elements(tensor, [&](auto i) { return sums[static_cast<std::size_t>(i % 5)]; });
  }
}

TEST_P(Collectives, AllReduceFromPoolMemoryAndMixed) {
  run([](Context& context, Group& group) {
    for (const std::int64_t count : {5000, 65'536, 300'001})
      for (const std::uint32_t private_rank : {99u, 0u, 1u})
        all_reduce_from_pool(context, group, count, private_rank);
  });
}

TEST_P(Collectives, AllReduceFromPoolMemoryInSeveralChunks) {
  run([](Context& context, Group& group) {
    // Chunks of 1 MiB a member, the last one partial; then more than the caches hold.
    const std::int64_t chunk = 262'144 * group.size();
    all_reduce_from_pool(context, group, (group.size() == 2 ? 3 : 1) * chunk + 17, 99);
    if (group.size() == 2) all_reduce_from_pool(context, group, 4'194'304 + 5, 99);
  });
}

TEST_P(Collectives, Reduce) {
  run([](Context&, Group& group) {
    for (std::uint32_t root = 0; root < group.size(); ++root) {
      for (const std::int64_t count : kCounts) {
        const std::uint32_t rank = group.rank().value;
        const Tensor tensor = filled(rank, count);
        EXPECT_DONE(group.reduce(tensor, ReduceOp::sum, GroupRank{root}, kSoon));
        expect_elements(tensor, [&](auto i) {
          return rank == root ? sum_at(group.size(), i) : value_of(rank, i);
        });
      }
    }
  });
}

TEST_P(Collectives, Broadcast) {
  run([](Context&, Group& group) {
    for (std::uint32_t root = 0; root < group.size(); ++root) {
      for (const std::int64_t count : kCounts) {
        const Tensor tensor = filled(group.rank().value, count);
        EXPECT_DONE(group.broadcast(tensor, GroupRank{root}, kSoon));
        expect_elements(tensor, [&](auto i) { return value_of(root, i); });
      }
    }
  });
}

TEST_P(Collectives, AllGatherInOneTensorAndInAList) {
  run([](Context&, Group& group) {
    const std::uint32_t rank = group.rank().value;
    for (const std::int64_t count : kCounts) {
      const Tensor all =
          Tensor::empty(DType::i32, Shape({static_cast<std::int64_t>(group.size()), count}))
              .value();
      EXPECT_DONE(group.all_gather(filled(rank, count), all, kSoon));
      if (count != 0) {
        expect_elements(all, [&](auto i) {
          return value_of(static_cast<std::uint32_t>(i / count), i % count);
        });
      }
      // Uneven blocks: rank r sends r * count elements, rank 0 none.
      std::vector<Tensor> outputs;
      for (std::uint32_t m = 0; m < group.size(); ++m)
        outputs.push_back(Tensor::empty(DType::i32, Shape({m * count})).value());
      EXPECT_DONE(group.all_gather(filled(rank, rank * count), outputs, kSoon));
      for (std::uint32_t m = 0; m < group.size(); ++m)
        expect_elements(outputs[m], [&](auto i) { return value_of(m, i); });
    }
  });
}

TEST_P(Collectives, GatherAndScatterWithUnevenBlocks) {
  run([](Context&, Group& group) {
    const std::uint32_t rank = group.rank().value;
    for (std::uint32_t root = 0; root < group.size(); ++root) {
      for (const std::int64_t count : kCounts) {
        const auto size_of = [&](std::uint32_t m) { return ((m + 1) % 3) * count; };
        std::vector<Tensor> blocks;
        for (std::uint32_t m = 0; m < group.size() && rank == root; ++m)
          blocks.push_back(Tensor::empty(DType::i32, Shape({size_of(m)})).value());
        const Tensor mine = filled(rank, size_of(rank));
        EXPECT_DONE(group.gather(mine, blocks, GroupRank{root}, kSoon));
        for (std::uint32_t m = 0; m < blocks.size(); ++m)
          expect_elements(blocks[m], [&](auto i) { return value_of(m, i); });
        // Scatters the blocks back, each element increased by one.
        for (Tensor& block : blocks)
          for (std::int32_t& element : block.span<std::int32_t>()) ++element;
        EXPECT_DONE(group.scatter(blocks, mine, GroupRank{root}, kSoon));
        expect_elements(mine, [&](auto i) { return value_of(rank, i) + 1; });
      }
    }
  });
}

TEST_P(Collectives, ReduceScatter) {
  run([](Context&, Group& group) {
    const std::uint32_t rank = group.rank().value;
    for (const std::int64_t count : kCounts) {
      const Tensor input = filled(rank, count * group.size());
      const Tensor output = Tensor::empty(DType::i32, Shape({count})).value();
      EXPECT_DONE(group.reduce_scatter(input, output, ReduceOp::sum, kSoon));
      expect_elements(output, [&](auto i) { return sum_at(group.size(), rank * count + i); });
      expect_elements(input, [&](auto i) { return value_of(rank, i); });
      std::vector<Tensor> blocks;
      for (std::uint32_t m = 0; m < group.size(); ++m) blocks.push_back(filled(rank, m * count));
      const Tensor own = Tensor::empty(DType::i32, Shape({rank * count})).value();
      EXPECT_DONE(group.reduce_scatter(blocks, own, ReduceOp::sum, kSoon));
      expect_elements(own, [&](auto i) { return sum_at(group.size(), i); });
    }
  });
}

TEST_P(Collectives, AllToAllWithBlocksOfAnySize) {
  run([](Context&, Group& group) {
    const std::uint32_t rank = group.rank().value;
    for (const std::int64_t count : kCounts) {
      // Member a sends (a + 2 b) mod 3 times `count` elements to b: those of a from 10 b on.
      const auto size_of = [&](std::uint32_t a, std::uint32_t b) {
        return (a + 2 * b) % 3 * count;
      };
      std::vector<Tensor> inputs;
      std::vector<Tensor> outputs;
      for (std::uint32_t m = 0; m < group.size(); ++m) {
        inputs.push_back(filled(rank, size_of(rank, m), 10 * m));
        outputs.push_back(Tensor::empty(DType::i32, Shape({size_of(m, rank)})).value());
      }
      EXPECT_DONE(group.all_to_all(inputs, outputs, kSoon));
      for (std::uint32_t m = 0; m < group.size(); ++m)
        expect_elements(outputs[m], [&](auto i) { return value_of(m, 10 * rank + i); });
    }
  });
}

TEST_P(Collectives, Barriers) {
  run([](Context&, Group& group) {
    for (int i = 0; i < 50; ++i) {
      EXPECT_DONE(group.barrier(kSoon));
      EXPECT_DONE(group.monitored_barrier(kSoon));
    }
  });
}

TEST_P(Collectives, AWholeTensorDictIsOneOperation) {
  run([](Context&, Group& group) {
    const auto rank = static_cast<float>(group.rank().value);
    TensorDict batch;
    batch.set("weights", Tensor::of<float>({3}, {rank, rank + 1, rank + 2}));
    batch.set("nested/steps", Tensor::of<std::int64_t>({2}, {1, 2}));
    batch.set("nested/empty", Tensor::zeros(DType::f64, Shape({0})).value());
    batch.set("flag", Tensor::of<double>({}, {0.5}));
    EXPECT_DONE(group.all_reduce(batch, ReduceOp::sum, kSoon));
    const auto n = static_cast<float>(group.size());
    const float ranks = n * (n - 1) / 2;
    EXPECT_EQ(batch["weights"].item<float>({1}), ranks + n);
    EXPECT_EQ(batch["nested/steps"].item<std::int64_t>({1}), 2 * static_cast<std::int64_t>(n));
    EXPECT_EQ(batch["flag"].item<double>(), 0.5 * n);
    EXPECT_EQ(group.last_complete_sequence(), 1u);
    batch["weights"].span<float>()[0] = rank;
    EXPECT_DONE(group.broadcast(batch, GroupRank{group.size() - 1}, kSoon));
    EXPECT_EQ(batch["weights"].item<float>({0}), n - 1);
  });
}

TEST_P(Collectives, TensorsWithGaps) {
  run([](Context&, Group& group) {
    const Tensor whole = filled(group.rank().value, 3000).reshape(Shape({50, 60})).value();
    const Tensor gappy = whole.transpose(0, 1).value();
    EXPECT_DONE(group.all_reduce(gappy, ReduceOp::sum, kSoon));
    expect_elements(whole, [&](auto i) { return sum_at(group.size(), i); });
  });
}

TEST_P(Collectives, EveryReductionOfEveryMemberHasTheSameBits) {
  std::mutex mutex;
  std::map<std::string, std::vector<std::vector<std::byte>>> results;
  run([&](Context&, Group& group) {
    std::mt19937 random(group.rank().value + 1);
    std::normal_distribution<float> normal;
    for (const std::int64_t count : {100, 70'000}) {
      for (const ReduceOp& op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min,
                                 ReduceOp::max, ReduceOp::premul_sum(0.3)}) {
        const Tensor tensor = Tensor::empty(DType::f32, Shape({count})).value();
        for (float& element : tensor.span<float>()) element = normal(random);
        EXPECT_DONE(group.all_reduce(tensor, op, kSoon));
        std::lock_guard lock(mutex);
        results[std::string(to_string(op.kind())) + std::to_string(count)].emplace_back(
            tensor.data(), tensor.data() + tensor.size_bytes());
      }
    }
  });
  EXPECT_EQ(results.size(), 12u);
  for (const auto& [name, bits] : results)
    for (const auto& each : bits) EXPECT_EQ(each, bits.front()) << name;
}

TEST_P(Collectives, AsynchronousOnesRunInTheOrderOfTheCalls) {
  run([](Context&, Group& group) {
    std::vector<Tensor> tensors;
    std::vector<Completion<void>> completions;
    for (std::int64_t i = 0; i < 20; ++i) {
      tensors.push_back(filled(group.rank().value, 1 + i * 3000));
      completions.push_back(group.all_reduce_async(tensors.back(), ReduceOp::sum));
      completions.push_back(group.broadcast_async(tensors.back(), GroupRank{0}));
    }
    for (auto& completion : completions) EXPECT_DONE(completion.wait(kSoon));
    for (const Tensor& tensor : tensors)
      expect_elements(tensor, [&](auto i) { return sum_at(group.size(), i); });
  });
}

// The same random program on all members; some of its operations are asynchronous and waited for
// late.
TEST_P(Collectives, RandomPrograms) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  run([seed](Context&, Group& group) {
    std::mt19937 random(seed);
    const std::uint32_t rank = group.rank().value;
    struct Open {
      Completion<void> completion;
      Tensor tensor;
      std::function<std::int32_t(std::int64_t)> expected;
    };
    std::vector<Open> open;
    const auto settle = [&] {
      for (Open& each : open) {
        EXPECT_DONE(each.completion.wait(kSoon));
        expect_elements(each.tensor, each.expected);
      }
      open.clear();
    };
    for (int step = 0; step < 60; ++step) {
      const std::int64_t count = random() % 4 == 0 ? random() % 100'000 : random() % 300;
      const std::uint32_t root = random() % group.size();
      const Tensor tensor = filled(rank, count);
      switch (random() % 4) {
        case 0:
          open.push_back({group.all_reduce_async(tensor, ReduceOp::sum), tensor,
                          [n = group.size()](auto i) { return sum_at(n, i); }});
          break;
        case 1:
          open.push_back({group.broadcast_async(tensor, GroupRank{root}), tensor,
                          [root](auto i) { return value_of(root, i); }});
          break;
        case 2:
          EXPECT_DONE(group.all_reduce(tensor, ReduceOp::sum, kSoon));
          expect_elements(tensor, [&](auto i) { return sum_at(group.size(), i); });
          break;
        default:
          EXPECT_DONE(group.barrier(kSoon));
          break;
      }
      if (random() % 5 == 0) settle();
    }
    settle();
  });
}

// The position of a member's input and output in one memory, and the size of its input.
struct Shared {
  std::int64_t input_begin;
  std::int64_t input_count;
  std::int64_t output_begin;
  std::int64_t output_count;

  template <class Call, class Expected>
  void run(std::uint32_t rank, Call call, Expected expected) const {
    SCOPED_TRACE("input at " + std::to_string(input_begin) + ", output at " +
                 std::to_string(output_begin));
    const Tensor memory = Tensor::zeros(DType::i32, Shape({ends()})).value();
    const Tensor input = part(memory, input_begin, input_count);
    const Tensor output = part(memory, output_begin, output_count);
    std::memcpy(input.span<std::int32_t>().data(), filled(rank, input_count).data(),
                input.size_bytes());
    EXPECT_DONE(call(input, output));
    expect_elements(output, expected);
  }

 private:
  std::int64_t ends() const {
    return std::max(input_begin + input_count, output_begin + output_count);
  }
  static Tensor part(const Tensor& memory, std::int64_t begin, std::int64_t count) {
    return Tensor::view(memory.storage(), static_cast<std::uint64_t>(begin) * 4, DType::i32,
                        Shape({count}))
        .value();
  }
};

// An input that overlaps results is read before it is overwritten, wherever it lies.
TEST_P(Collectives, InputsMayShareMemoryWithResults) {
  run([](Context&, Group& group) {
    const std::uint32_t rank = group.rank().value;
    const std::uint32_t members = group.size();
    for (const std::int64_t count : {25, 100'000}) {
      const std::int64_t all = count * members;
      const std::int64_t own = count * rank;
      const std::int64_t other = count * ((rank + 1) % members);
      for (const std::int64_t begin : {own, other, count / 2}) {
        const Shared one_of_output{begin, count, 0, all};
        one_of_output.run(
            rank, [&](const auto& in, const auto& out) { return group.all_gather(in, out, kSoon); },
            [&](auto i) { return value_of(static_cast<std::uint32_t>(i / count), i % count); });
        const Shared one_of_input{0, all, begin, count};
        one_of_input.run(
            rank,
            [&](const auto& in, const auto& out) {
              return group.reduce_scatter(in, out, ReduceOp::sum, kSoon);
            },
            [&](auto i) { return sum_at(members, own + i); });
        for (std::uint32_t root = 0; root < members; ++root) {
          one_of_input.run(
              rank,
              [&](const auto& in, const auto& out) {
                return group.scatter(in, out, GroupRank{root}, kSoon);
              },
              [&](auto i) { return value_of(root, own + i); });
          if (rank != root) {
            EXPECT_DONE(
                group.gather(filled(rank, count), std::vector<Tensor>{}, GroupRank{root}, kSoon));
            continue;
          }
          one_of_output.run(
              rank,
              [&](const auto& in, const auto& out) {
                return group.gather(in, out, GroupRank{root}, kSoon);
              },
              [&](auto i) { return value_of(static_cast<std::uint32_t>(i / count), i % count); });
        }
      }
      for (const std::int64_t begin : {std::int64_t{0}, count, count / 2}) {
        const Shared both{begin, all, 0, all};
        both.run(
            rank, [&](const auto& in, const auto& out) { return group.all_to_all(in, out, kSoon); },
            [&](auto i) {
              return value_of(static_cast<std::uint32_t>(i / count), own + i % count);
            });
      }
    }
  });
}

TEST_P(Collectives, OverlappingGroupsDoNotMix) {
  run([](Context&, Group& group) {
    std::vector<GroupRank> all;
    for (std::uint32_t rank = 0; rank < group.size(); ++rank) all.push_back(GroupRank{rank});
    auto other = group.subgroup(all, kSoon);
    ASSERT_TRUE(other) << other.error().message();
    for (int i = 0; i < 20; ++i) {
      const Tensor a = filled(group.rank().value, 5000);
      const Tensor b = filled(group.rank().value, 5000, 1);
      auto first = group.all_reduce_async(a, ReduceOp::sum);
      auto second = other->all_reduce_async(b, ReduceOp::sum);
      EXPECT_DONE(second.wait(kSoon));
      EXPECT_DONE(first.wait(kSoon));
      expect_elements(a, [&](auto j) { return sum_at(group.size(), j); });
      expect_elements(b, [&](auto j) { return sum_at(group.size(), j + 1); });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Paths, Collectives,
    testing::Values(Case{Transport::automatic, 1}, Case{Transport::automatic, 2},
                    Case{Transport::automatic, 3}, Case{Transport::automatic, 4},
                    Case{Transport::tcp, 2}, Case{Transport::tcp, 3}, Case{Transport::tcp, 4},
                    Case{Transport::automatic, 3, "aab"}, Case{Transport::automatic, 4, "abab"},
                    Case{Transport::automatic, 5, "abbca"}),
    [](const auto& tested) {
      return std::string(tested.param.transport == Transport::tcp ? "tcp" : "shm") +
             std::to_string(tested.param.members) + tested.param.hosts;
    });

TEST(CollectivesOfHosts, AreTakenInTwoLevelsAndSaySo) {
  if (!test::may_name_hosts()) GTEST_SKIP() << "no UTS namespace of its own can be made here";
  run_members(4,
              [](Context&, Group& group) {
                EXPECT_THAT(group.describe(),
                            testing::AllOf(testing::HasSubstr("hosts, by their names: 2"),
                                           testing::HasSubstr("all_reduce: 8 B two_level (1 shard"),
                                           testing::HasSubstr("barrier: 8 B two_level\n")));
                // The result has the same bits on every member, although sums depend on the order.
                Tensor tensor = Tensor::empty(DType::f32, Shape({300'001})).value();
                for (std::size_t i = 0; i < 300'001; ++i) {
                  tensor.span<float>()[i] =
                      1.0f / static_cast<float>(i + 1 + group.rank().value * std::size_t{1000});
                }
                EXPECT_DONE(group.all_reduce(tensor, ReduceOp::sum, kSoon));
                std::vector<Tensor> all;
                for (std::uint32_t rank = 0; rank < group.size(); ++rank)
                  all.push_back(Tensor::empty(DType::f32, Shape({300'001})).value());
                EXPECT_DONE(group.all_gather(tensor, all, kSoon));
                for (const Tensor& other : all)
                  EXPECT_EQ(std::memcmp(other.data(), tensor.data(), tensor.size_bytes()), 0);
              },
              {.hosts = "abba"});
}

TEST(CollectivesOfMany, EightMembersOfOneHost) {
  run_members(8, [](Context&, Group& group) {
    for (const std::int64_t count : {1, 1000, 100'000}) {
      const Tensor tensor = filled(group.rank().value, count);
      EXPECT_DONE(group.all_reduce(tensor, ReduceOp::sum, kSoon));
      expect_elements(tensor, [&](auto i) { return sum_at(group.size(), i); });
    }
  });
}

}  // namespace
}  // namespace tendon
