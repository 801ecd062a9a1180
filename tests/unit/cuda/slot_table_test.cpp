// SPDX-License-Identifier: Apache-2.0
#include "cuda/slot_table.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cuda/slot_sizes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using v0::detail::SlotId;
using v0::detail::cuda::SlotTable;
namespace cuda = v0::detail::cuda;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint32_t kFirst = 100;

TEST(SlotSizes, ArePowersOfTwoBelowTheUnitOfTheDriver) {
  EXPECT_EQ(cuda::slot_bytes_for(0), 4096u);
  EXPECT_EQ(cuda::slot_bytes_for(4096), 4096u);
  EXPECT_EQ(cuda::slot_bytes_for(4097), 8192u);
  EXPECT_EQ(cuda::slot_bytes_for(kMiB), kMiB);
  EXPECT_EQ(cuda::slot_bytes_for(kMiB + 1), 2 * kMiB);
  EXPECT_EQ(cuda::segment_bytes_for(kMiB, 1024 * kMiB), 32 * kMiB);
  EXPECT_EQ(cuda::segment_bytes_for(kMiB, 100 * kMiB), 4 * kMiB) << "of a small pool";
  EXPECT_EQ(cuda::segment_bytes_for(4096, 1), 2 * kMiB);
  EXPECT_EQ(cuda::segment_bytes_for(2 * kMiB, 1), 2 * kMiB);
}

TEST(SlotSizes, AboveItAtMostAnEighthIsInVain) {
  EXPECT_EQ(cuda::slot_bytes_for(2 * kMiB + 1), 4 * kMiB);
  EXPECT_EQ(cuda::slot_bytes_for(100'000'000), 96 * kMiB);
  for (std::uint64_t size = 32 * kMiB; size < std::uint64_t{1} << 40; size += size / 7 + 1) {
    const std::uint64_t slot = cuda::slot_bytes_for(size);
    ASSERT_GE(slot, size);
    ASSERT_EQ(slot % cuda::kLargeSlotBytes, 0u) << size;
    ASSERT_LT(slot - size, size / 8 + 1) << size;
    ASSERT_EQ(cuda::slot_bytes_for(slot), slot) << size;
  }
}

class SlotTableTest : public testing::Test {
 protected:
  /// Adds a segment of slots of this size.
  std::uint32_t grow(std::uint64_t slot_bytes, SlotTable::TimePoint now = {}) {
    const auto number = table_.reserve(slot_bytes, removed_);
    EXPECT_TRUE(number);
    table_.add(number.value_or(0), now);
    return number.value_or(0);
  }

  SlotTable table_{kFirst, 64 * kMiB};
  std::vector<std::uint32_t> removed_;
};

TEST_F(SlotTableTest, EachSlotIsInUseOnceAtATime) {
  EXPECT_FALSE(table_.take(kMiB));
  const std::uint32_t segment = grow(kMiB);
  EXPECT_EQ(segment, kFirst);
  std::set<std::uint64_t> offsets;
  std::vector<SlotId> taken;
  while (const auto place = table_.take(kMiB)) {
    EXPECT_EQ(place->id.segment, segment);
    EXPECT_EQ(place->offset_bytes, place->id.slot * kMiB);
    EXPECT_TRUE(offsets.insert(place->offset_bytes).second);
    taken.push_back(place->id);
  }
  EXPECT_EQ(taken.size(), 4u);
  EXPECT_EQ(table_.used_bytes(), 4 * kMiB);
  table_.free(taken[1], {});
  const auto again = table_.take(kMiB);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->id.slot, taken[1].slot);
  EXPECT_GT(again->id.generation, taken.back().generation) << "in no slot twice";
}

TEST_F(SlotTableTest, AReservedSegmentHasNoSlotsAndKeepsItsRoom) {
  const auto number = table_.reserve(32 * kMiB, removed_);
  ASSERT_TRUE(number);
  EXPECT_FALSE(table_.take(32 * kMiB));
  EXPECT_EQ(table_.resident_bytes(), 32 * kMiB);
  ASSERT_TRUE(table_.reserve(32 * kMiB, removed_));
  EXPECT_FALSE(table_.reserve(32 * kMiB, removed_)) << "the cap";
  table_.cancel(*number);
  EXPECT_EQ(table_.reserve(32 * kMiB, removed_), *number + 2) << "no number twice";
  EXPECT_TRUE(removed_.empty());
}

TEST_F(SlotTableTest, TheLongestIdleSegmentMakesRoomForAnotherSize) {
  const std::uint32_t first = grow(16 * kMiB, SlotTable::TimePoint(2s));
  const std::uint32_t second = grow(16 * kMiB, SlotTable::TimePoint(1s));
  const std::uint32_t third = grow(32 * kMiB, SlotTable::TimePoint(3s));
  EXPECT_EQ(grow(8 * kMiB), third + 1);
  EXPECT_EQ(removed_, std::vector{second});
  EXPECT_EQ(grow(24 * kMiB), third + 2);
  EXPECT_EQ(removed_, (std::vector{second, third + 1, first}))
      << "the second was idle since the clock's beginning";
}

TEST_F(SlotTableTest, NothingIsRemovedWhereItWouldNotDo) {
  grow(16 * kMiB);
  grow(48 * kMiB);
  const auto used = table_.take(48 * kMiB);
  ASSERT_TRUE(used);
  EXPECT_FALSE(table_.reserve(32 * kMiB, removed_));
  EXPECT_TRUE(removed_.empty());
  EXPECT_FALSE(table_.reserve(128 * kMiB, removed_)) << "more than the cap";
}

TEST_F(SlotTableTest, ASegmentIsIdleOnceAllItsSlotsAreFree) {
  grow(kMiB, SlotTable::TimePoint(1s));
  EXPECT_EQ(table_.idle_since(), SlotTable::TimePoint(1s));
  const auto first = table_.take(kMiB);
  const auto second = table_.take(kMiB);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(table_.idle_since());
  table_.free(first->id, SlotTable::TimePoint(2s));
  EXPECT_TRUE(table_.remove_idle(SlotTable::TimePoint(9s)).empty());
  table_.free(second->id, SlotTable::TimePoint(3s));
  EXPECT_EQ(table_.idle_since(), SlotTable::TimePoint(3s));
  EXPECT_TRUE(table_.remove_idle(SlotTable::TimePoint(2s)).empty());
  EXPECT_EQ(table_.remove_idle(SlotTable::TimePoint(3s)), std::vector{kFirst});
  EXPECT_EQ(table_.resident_bytes(), 0u);
  EXPECT_EQ(grow(2 * kMiB), kFirst + 1) << "peers may know the number still";
  EXPECT_GT(table_.take(2 * kMiB)->id.generation, second->id.generation);
}

TEST_F(SlotTableTest, NoSegmentHasANumberBeyondTheLast) {
  SlotTable table(kFirst, 256 * kMiB, 2);
  ASSERT_EQ(table.reserve(kMiB, removed_), kFirst);
  table.cancel(kFirst);
  ASSERT_EQ(table.reserve(kMiB, removed_), kFirst + 1);
  table.cancel(kFirst + 1);
  EXPECT_FALSE(table.reserve(kMiB, removed_)) << "the next one is of another pool";
}

}  // namespace
}  // namespace tendon::test
