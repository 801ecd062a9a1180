// SPDX-License-Identifier: Apache-2.0
// The pools of a Context, one for each GPU, on the double of the driver.
#include "cuda/device_pools.hpp"

#include <gmock/gmock.h>

#include "cuda/gpus.hpp"
#include "support/cuda/gpu.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using cuda::DevicePool;
using cuda::DevicePools;

constexpr std::uint64_t kSlotBytes = std::uint64_t{4} << 20;

class DevicePoolsTest : public testing::Test {
 protected:
  void SetUp() override {
    driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
    thread = std::make_unique<cuda::DeviceThread>(*driver);
    gpus = std::make_unique<cuda::Gpus>(*driver, *thread);
    pools = std::make_unique<DevicePools>(4 * kSlotBytes);
  }
  void TearDown() override {
    pools.reset();
    gpus.reset();
    thread.reset();
    fake.reset();
  }
  [[nodiscard]] std::shared_ptr<DevicePool> pool(int ordinal) {
    return pools->of(gpus->use(ordinal, kPatience).value());
  }
  [[nodiscard]] std::shared_ptr<cuda::DeviceSlot> slot(int ordinal) {
    return pool(ordinal)->acquire(kSlotBytes, kPatience).value();
  }

  const Variable devices{"TENDON_CUDA_DOUBLE_DEVICES", "2"};
  CudaDouble fake;
  std::unique_ptr<cuda::Driver> driver;
  std::unique_ptr<cuda::DeviceThread> thread;
  std::unique_ptr<cuda::Gpus> gpus;
  std::unique_ptr<DevicePools> pools;
};

TEST_F(DevicePoolsTest, EachGpuHasOne) {
  EXPECT_TRUE(pools->stats().empty());
  EXPECT_EQ(pool(1), pool(1));
  EXPECT_NE(pool(0), pool(1));
  const auto used = slot(1);
  const auto stats = pools->stats();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(to_string(stats[0].first), "cuda:0");
  EXPECT_EQ(stats[0].second.used_bytes, 0u);
  EXPECT_EQ(to_string(stats[1].first), "cuda:1");
  EXPECT_EQ(stats[1].second.used_bytes, kSlotBytes);
  EXPECT_EQ(stats[1].second.cap_bytes, 4 * kSlotBytes);
}

TEST_F(DevicePoolsTest, TrimsThatWhichIsIdleLongestFirst) {
  EXPECT_FALSE(pools->next_trim());
  slot(1).reset();
  const auto first = pools->next_trim();
  ASSERT_TRUE(first);
  EXPECT_EQ(first, pool(1)->next_trim());
  ASSERT_TRUE(
      eventually([&] { return std::chrono::steady_clock::now() > *first - DevicePool::kIdle; }));
  slot(0).reset();
  EXPECT_EQ(pools->next_trim(), first);
  pools->trim(*first - 1ns);
  EXPECT_EQ(pool(1)->stats().segments, 1u);
  pools->trim(*first);
  EXPECT_EQ(pool(1)->stats().segments, 0u);
  EXPECT_EQ(pool(0)->stats().segments, 1u);
  const auto second = pools->next_trim();
  ASSERT_TRUE(second);
  EXPECT_GT(*second, *first);
  pools->trim(*second);
  EXPECT_FALSE(pools->next_trim());
}

TEST_F(DevicePoolsTest, ANumberNamesOneSegmentOfAllGpus) {
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    for (const std::uint32_t ordinal : {0u, 1u}) {
      EXPECT_EQ(slot(static_cast<int>(ordinal))->id().segment,
                DevicePool::kFirstSegment + ordinal * cuda::SlotTable::kMostNumbers + turn);
    }
    pools->trim(DevicePools::TimePoint::max());
    EXPECT_EQ(pool(0)->stats().segments, 0u);
  }
}

}  // namespace
}  // namespace tendon::test
