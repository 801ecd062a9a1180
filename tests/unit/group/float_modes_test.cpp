// SPDX-License-Identifier: Apache-2.0
// The replicas of a reduction have the same bits, whatever arithmetic mode one member's program has
// chosen for its threads.
#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include "group/reduce/reduce.hpp"
#include "support/group_members.hpp"
#include "support/program_float_mode.hpp"

namespace tendon {
namespace {

using test::ProgramFloatMode;
using Kind = ProgramFloatMode::Kind;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;
constexpr std::uint32_t kMembers = 3;
constexpr std::uint32_t kOddOne = 1;  // the rank that has the mode
constexpr std::int64_t kCount = 1001;
constexpr std::array kKinds = {Kind::flush_to_zero, Kind::upward, Kind::downward, Kind::raising};
const std::array kOps = {ReduceOp::sum, ReduceOp::avg, ReduceOp::premul_sum(1.0 / 3.0)};

// Clears the bytes of the exponent of the last number before `end`: the number becomes subnormal.
void make_subnormal(DType dtype, std::byte* end) {
  const auto keep = [&](int from_end, unsigned bits) {
    end[-from_end] &= static_cast<std::byte>(bits);
  };
  switch (dtype) {
    case DType::f16:
    case DType::c32:
      return keep(1, 0x83);
    case DType::bf16:
    case DType::f32:
    case DType::c64:
      keep(1, 0x80);
      return keep(2, 0x7F);
    case DType::f64:
    case DType::c128:
      keep(1, 0x80);
      return keep(2, 0x0F);
    default:
      return;  // of eight bits: all patterns occur
  }
}

// Fills with random bits: infinities and NaN are among them, and every second number is subnormal.
Tensor filled(DType dtype, std::uint32_t rank) {
  Tensor tensor = Tensor::empty(dtype, Shape({kCount})).value();
  std::minstd_rand random(rank + 1);
  const MutableBytes bytes = tensor.mutable_bytes();
  for (std::byte& each : bytes) each = static_cast<std::byte>(random() >> 8);
  const bool is_complex = dtype == DType::c32 || dtype == DType::c64 || dtype == DType::c128;
  const std::size_t size = item_size_bytes(dtype) / (is_complex ? 2 : 1);
  for (std::size_t end = size; end <= bytes.size(); end += 2 * size)
    make_subnormal(dtype, bytes.data() + end);
  return tensor;
}

std::vector<DType> averaged_dtypes() {
  std::vector<DType> all;
  for (const DTypeInfo& info : dtype_table()) {
    if (detail::check_reduce(ReduceOp::avg, info.dtype, "test")) all.push_back(info.dtype);
  }
  return all;
}

enum class Call { blocking, async };
using Case = std::tuple<Transport, Call>;

class FloatModes : public testing::TestWithParam<Case> {
 protected:
  using Replica = std::vector<std::string>;  // the bytes of each result

  static std::string reduced(Group& group, DType dtype, ReduceOp op) {
    const Tensor tensor = filled(dtype, group.rank().value);
    const auto done = std::get<1>(GetParam()) == Call::blocking
                          ? group.all_reduce({tensor}, op, kSoon)
                          : group.all_reduce_async({tensor}, op).wait(kSoon);
    EXPECT_TRUE(done) << done.error().message();
    return std::string(as_text(tensor.bytes()));
  }

  static std::array<Replica, kMembers> replicas(std::optional<Kind> mode_of_the_odd_one) {
    std::array<Replica, kMembers> all;
    test::run_members(kMembers,
                      [&](Context&, Group& group) {
                        std::optional<ProgramFloatMode> mode;
                        if (mode_of_the_odd_one && group.rank().value == kOddOne)
                          mode.emplace(*mode_of_the_odd_one);
                        for (const DType dtype : averaged_dtypes())
                          for (const ReduceOp& op : kOps)
                            all[group.rank().value].push_back(reduced(group, dtype, op));
                      },
                      {.transport = std::get<0>(GetParam())});
    return all;
  }
};
std::string name_of_case(const testing::TestParamInfo<Case>& tested) {
  const auto [transport, call] = tested.param;
  return std::string(transport == Transport::tcp ? "tcp" : "shm") +
         (call == Call::async ? "_async" : "");
}
INSTANTIATE_TEST_SUITE_P(Ways, FloatModes,
                         testing::Combine(testing::Values(Transport::automatic, Transport::tcp),
                                          testing::Values(Call::blocking, Call::async)),
                         name_of_case);

TEST_P(FloatModes, DoNotCountInAReduction) {
  const Replica expected = replicas(std::nullopt)[0];
  for (const Kind kind : kKinds) {
    const auto all = replicas(kind);
    for (std::uint32_t rank = 0; rank < kMembers; ++rank) {
      ASSERT_EQ(all[rank].size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(all[rank][i] == expected[i])
            << "mode " << static_cast<int>(kind) << ", rank " << rank << ", "
            << to_string(averaged_dtypes()[i / kOps.size()]) << ", "
            << to_string(kOps[i % kOps.size()]);
      }
    }
  }
}

}  // namespace
}  // namespace tendon
