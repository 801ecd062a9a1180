// SPDX-License-Identifier: Apache-2.0
// Memory of messages returns to the system, but not before it is free.
#include "memory/private_blocks.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "support/child.hpp"

namespace tendon::test {
namespace {

using detail::PrivateBlocks;
using Block = std::shared_ptr<std::byte>;

constexpr std::uint64_t kKiB = 1024;
constexpr std::uint64_t kMiB = 1024 * kKiB;

/// The bytes of the pages that are resident; nothing where some are not mapped.
std::uint64_t resident_bytes(const std::byte* data, std::uint64_t size_bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_core(size_bytes / page);
  if (mincore(const_cast<std::byte*>(data), in_core.size() * page, in_core.data()) != 0) return 0;
  std::uint64_t count = 0;
  for (const unsigned char one : in_core) count += one & 1;
  return count * page;
}

Block filled(PrivateBlocks& blocks, std::uint64_t size_bytes) {
  Block block = blocks.allocate(size_bytes);
  std::memset(block.get(), 1, size_bytes);
  return block;
}

class BlockSizes : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(All, BlockSizes,
                         testing::Values(32 * kKiB, 100 * kKiB, kMiB, 4 * kMiB, 4 * kMiB + 1,
                                         20 * kMiB));

TEST_P(BlockSizes, PagesOfManyGoBackToTheSystem) {
  const std::uint64_t size_bytes = GetParam();
  PrivateBlocks blocks;
  std::vector<Block> kept;
  while (kept.size() * size_bytes < 2 * PrivateBlocks::kWarmBytes)
    kept.push_back(filled(blocks, size_bytes));
  std::vector<const std::byte*> places;
  for (const Block& block : kept) places.push_back(block.get());
  // The last block of the heap stays.
  const Block last = filled(blocks, size_bytes);
  kept.clear();
  EXPECT_LE(blocks.warm_bytes(), PrivateBlocks::kWarmBytes);
  std::uint64_t resident = 0;
  for (const std::byte* place : places) resident += resident_bytes(place, size_bytes);
  EXPECT_LE(resident, PrivateBlocks::kWarmBytes);
}

TEST_P(BlockSizes, TheNextMessageGetsThePagesOfTheOneBefore) {
  PrivateBlocks blocks;
  const std::byte* const first = filled(blocks, GetParam()).get();
  EXPECT_EQ(blocks.allocate(GetParam()).get(), first);
  EXPECT_GE(resident_bytes(first, 32 * kKiB), 32 * kKiB);
}

TEST(PrivateBlocks, ASmallMessageDoesNotKeepThePagesOfALargeOne) {
  PrivateBlocks blocks;
  const std::byte* const first = filled(blocks, 4 * kMiB).get();
  const Block small = blocks.allocate(2 * kMiB + 1);
  ASSERT_EQ(small.get(), first);
  EXPECT_LE(resident_bytes(first, 4 * kMiB), 2 * kMiB + 64 * kKiB);
}

TEST(PrivateBlocks, AreTheirOwnersAlone) {
  PrivateBlocks blocks;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<Block, std::uint64_t>> kept(40);
    for (int i = 0; i < 2000; ++i) {
      auto& [block, size_bytes] = kept[random() % kept.size()];
      if (block != nullptr) {
        // The bytes at both ends are still those that this thread wrote.
        ASSERT_EQ(std::to_integer<unsigned>(block.get()[0]), seed);
        ASSERT_EQ(std::to_integer<unsigned>(block.get()[size_bytes - 1]), seed);
      }
      size_bytes = PrivateBlocks::kLeastBytes << random() % 9;
      size_bytes -= random() % (size_bytes / 2 - 1);
      size_bytes = std::max(size_bytes, PrivateBlocks::kLeastBytes);
      block = blocks.allocate(size_bytes);
      ASSERT_NE(block, nullptr);
      block.get()[0] = block.get()[size_bytes - 1] = static_cast<std::byte>(seed);
    }
  };
  std::thread other(work, 7);
  work(9);
  other.join();
}

TEST(PrivateBlocks, OfAParentAreLeftToItByItsChild) {
  PrivateBlocks& blocks = PrivateBlocks::of_process();
  Block block = filled(blocks, kMiB);
  const int status = run_in_child([&] {
    const std::byte* const place = block.get();
    if (std::to_integer<int>(place[5]) != 1) return 1;
    block.reset();
    // The child's blocks are elsewhere.
    return filled(PrivateBlocks::of_process(), kMiB).get() == place ? 2 : 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_EQ(std::to_integer<int>(block.get()[kMiB - 1]), 1);
}

TEST(PrivateBlocks, AreNoneWhereTheSystemHasNoMemory) {
  EXPECT_EQ(PrivateBlocks().allocate(std::uint64_t{1} << 62), nullptr);
}

}  // namespace
}  // namespace tendon::test
