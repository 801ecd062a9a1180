// SPDX-License-Identifier: Apache-2.0
#include "memory/recycler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace tendon::v0::detail {
namespace {

TEST(Recycler, GivesTheLastBlockOutAgain) {
  Recycler recycler(200, 2);
  void* first = recycler.take();
  void* second = recycler.take();
  EXPECT_NE(first, second);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 64, 0u);
  std::memset(first, 1, 200);
  recycler.give(first);
  recycler.give(second);
  EXPECT_EQ(recycler.take(), second);
  EXPECT_EQ(recycler.take(), first);
  recycler.give(first);
  recycler.give(second);
}

TEST(Recycler, KeepsNoMoreThanItMay) {
  Recycler recycler(64, 2);
  std::array<void*, 3> blocks{};
  for (void*& block : blocks) block = recycler.take();
  for (void* block : blocks) recycler.give(block);  // the third returns to the heap
  EXPECT_EQ(recycler.take(), blocks[1]);
  EXPECT_EQ(recycler.take(), blocks[0]);
  recycler.give(blocks[0]);
  recycler.give(blocks[1]);

  Recycler none(64, 0);
  none.give(none.take());
}

TEST(Recycler, ManyThreadsNeverShareABlock) {
  Recycler recycler(64, 8);
  std::array<int, 4> wrong{};
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < wrong.size(); ++id) {
    threads.emplace_back([&recycler, &count = wrong[id], id] {
      for (int i = 0; i < 5000; ++i) {
        void* block = recycler.take();
        std::memset(block, static_cast<int>(id) + 1, 64);
        const auto* bytes = static_cast<const unsigned char*>(block);
        if (std::any_of(bytes, bytes + 64, [id](unsigned char b) { return b != id + 1; })) ++count;
        recycler.give(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

struct Small {
  explicit Small(std::array<std::uint64_t, 4> words) : words_(words) {}
  std::array<std::uint64_t, 4> words_;
};

TEST(RecyclingAllocator, SharedObjectsReuseTheirBlock) {
  const auto make = [] { return make_recycled<Small>(std::array<std::uint64_t, 4>{1, 2, 3, 4}); };
  auto first = make();
  const void* place = first.get();
  first.reset();
  for (int i = 0; i < 10; ++i) {
    const auto again = make();
    ASSERT_EQ(again.get(), place);
    ASSERT_EQ(again->words_[3], 4u);
  }
}

TEST(RecyclingAllocator, ArraysComeFromTheHeap) {
  RecyclingAllocator<Small> allocator;
  Small* const several = allocator.allocate(3);
  std::memset(static_cast<void*>(several), 1, 3 * sizeof(Small));
  allocator.deallocate(several, 3);
}

}  // namespace
}  // namespace tendon::v0::detail
