// SPDX-License-Identifier: Apache-2.0
#include "memory/copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

// The instruction sets that have an implementation of their own.
#include "core/instruction_sets.hpp"
// clang-format off
#include <hwy/targets.h>
// clang-format on

namespace tendon::v0::detail {
namespace {

constexpr std::size_t kGuard = 128;
constexpr std::byte kUntouched{0xa5};

/// A source without a period that could hide a misplaced line.
std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = 88172645463325252ull;
  for (std::byte& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state);
  }
  return bytes;
}

class Arena {
 public:
  explicit Arena(std::size_t largest)
      : source_(pattern(largest + 64)), memory_(largest + 2 * kGuard + 64, kUntouched) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    line_ = memory_.data() + (64 - address % 64) % 64;
    const auto from = reinterpret_cast<std::uintptr_t>(source_.data());
    source_line_ = source_.data() + (64 - from % 64) % 64;
  }

  /// Copies once; returns the fault, or null when all is right.
  [[nodiscard]] const char* check(std::size_t to_offset, std::size_t from_offset, std::size_t size,
                                  CopyHint hint) {
    std::byte* to = line_ + kGuard + to_offset - 64;
    const std::byte* from = source_line_ + from_offset;
    copy_bytes({to, size}, {from, size}, hint);
    const char* wrong = nullptr;
    if (size != 0 && std::memcmp(to, from, size) != 0) wrong = "bytes differ";
    if (std::any_of(to - 64, to, [](std::byte b) { return b != kUntouched; }))
      wrong = "wrote before";
    if (std::any_of(to + size, to + size + 64, [](std::byte b) { return b != kUntouched; }))
      wrong = "wrote behind";
    std::fill(to - 64, to + size + 64, kUntouched);
    return wrong;
  }

 private:
  std::vector<std::byte> source_;
  std::vector<std::byte> memory_;
  std::byte* line_;
  const std::byte* source_line_;
};

/// A copy method, with the loop of an instruction set.
struct Way {
  std::int64_t target;
  CopyHint hint;
};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets())
    for (const CopyHint hint : kCopyHints) all.push_back({target, hint});
  return all;
}
std::string name_of(const testing::TestParamInfo<Way>& info) {
  return std::string(hwy::TargetName(info.param.target)) + "_" +
         std::string(to_string(info.param.hint));
}

class CopyBytes : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam().target); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(Each, CopyBytes, testing::ValuesIn(ways()), name_of);

TEST_P(CopyBytes, EveryAlignmentAroundTheSizesWhereThePathChanges) {
  Arena arena(2 * 4096);
  const std::size_t sizes[] = {0,    1,    63,   64,   65,   127,  4095, 4096, 4097, 4158, 4159,
                               4160, 4161, 4223, 4224, 4350, 4351, 4352, 4353, 4415, 4416, 8191};
  for (const std::size_t size : sizes)
    for (std::size_t to = 0; to < 64; ++to)
      for (const std::size_t from : {0, 1, 7, 8, 15, 16, 31, 32, 63})
        ASSERT_EQ(arena.check(to, from, size, GetParam().hint), nullptr)
            << size << " bytes, to " << to << ", from " << from;
}

TEST_P(CopyBytes, EverySizeOfSomePages) {
  Arena arena(2 * 4096);
  for (std::size_t size = 4096; size < 4096 + 512; ++size) {
    ASSERT_EQ(arena.check(13, 5, size, GetParam().hint), nullptr) << size;
    ASSERT_EQ(arena.check(0, 0, size, GetParam().hint), nullptr) << size;
  }
}

TEST_P(CopyBytes, LargeBlocks) {
  Arena arena((8 << 20) + 64);
  for (const std::size_t size : {(8u << 20) - 1, 8u << 20, (8u << 20) + 1})
    for (const std::size_t to : {0, 1, 33, 63})
      ASSERT_EQ(arena.check(to, (to * 7) % 64, size, GetParam().hint), nullptr)
          << size << " bytes, to " << to;
}

TEST_P(CopyBytes, DestinationMayBeLonger) {
  const std::vector<std::byte> source = pattern(5000);
  std::vector<std::byte> destination(6000, kUntouched);
  copy_bytes(destination, source, GetParam().hint);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), destination.begin()));
  EXPECT_EQ(std::count(destination.begin() + 5000, destination.end(), kUntouched), 1000);
}

}  // namespace
}  // namespace tendon::v0::detail
