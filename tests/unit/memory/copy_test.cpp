// SPDX-License-Identifier: Apache-2.0
#include "memory/copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tendon::inline v0::detail {
namespace {

constexpr std::size_t kGuard = 128;
constexpr std::byte kUntouched{0xa5};

/// A source without a period that a misplaced line could hide behind.
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

  /// Copies once and answers what is wrong, nothing when all is right.
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

TEST(CopyBytes, EveryAlignmentAroundTheSizesWhereThePathChanges) {
  Arena arena(2 * 4096);
  const std::size_t sizes[] = {0,    1,    63,   64,   65,   127,  4095, 4096,
                               4097, 4158, 4159, 4160, 4161, 4223, 4224, 8191};
  for (const CopyHint hint : {CopyHint::cached, CopyHint::streaming})
    for (const std::size_t size : sizes)
      for (std::size_t to = 0; to < 64; ++to)
        for (const std::size_t from : {0, 1, 7, 8, 15, 16, 31, 32, 63}) {
          const char* wrong = arena.check(to, from, size, hint);
          ASSERT_EQ(wrong, nullptr) << size << " bytes, to " << to << ", from " << from << ", hint "
                                    << static_cast<int>(hint);
        }
}

TEST(CopyBytes, EverySizeOfSomePages) {
  Arena arena(2 * 4096);
  for (std::size_t size = 4096; size < 4096 + 256; ++size) {
    ASSERT_EQ(arena.check(13, 5, size, CopyHint::streaming), nullptr) << size;
    ASSERT_EQ(arena.check(0, 0, size, CopyHint::streaming), nullptr) << size;
  }
}

TEST(CopyBytes, LargeBlocks) {
  Arena arena((8 << 20) + 64);
  for (const CopyHint hint : {CopyHint::cached, CopyHint::streaming})
    for (const std::size_t size : {(8u << 20) - 1, 8u << 20, (8u << 20) + 1})
      for (const std::size_t to : {0, 1, 33, 63}) {
        const char* wrong = arena.check(to, (to * 7) % 64, size, hint);
        ASSERT_EQ(wrong, nullptr) << size << " bytes, to " << to;
      }
}

TEST(CopyBytes, DestinationMayBeLonger) {
  const std::vector<std::byte> source = pattern(5000);
  std::vector<std::byte> destination(6000, kUntouched);
  copy_bytes(destination, source, CopyHint::streaming);
  EXPECT_TRUE(std::equal(source.begin(), source.end(), destination.begin()));
  EXPECT_EQ(std::count(destination.begin() + 5000, destination.end(), kUntouched), 1000);
}

TEST(CopyBytes, HintFollowsTheWholeMessage) {
  EXPECT_EQ(copy_hint(0), CopyHint::cached);
  EXPECT_EQ(copy_hint(kStreamingBytes - 1), CopyHint::cached);
  EXPECT_EQ(copy_hint(kStreamingBytes), CopyHint::streaming);
  EXPECT_EQ(copy_hint(~std::uint64_t{0}), CopyHint::streaming);
}

}  // namespace
}  // namespace tendon::inline v0::detail
