// SPDX-License-Identifier: Apache-2.0
// Slots on a GPU and their holders, on the double of the driver.
#include "cuda/device_pool.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/cuda/gpu.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using cuda::DevicePool;
using cuda::DeviceSlot;
using cuda::Status;
using v0::detail::Death;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kCapBytes = 64 * kMiB;

class DevicePoolTest : public GpuFixture {
 protected:
  void SetUp() override {
    GpuFixture::SetUp();
    pool_ = std::make_shared<DevicePool>(context, *thread, kCapBytes);
  }
  void TearDown() override {
    pool_.reset();
    GpuFixture::TearDown();
  }
  [[nodiscard]] std::shared_ptr<DeviceSlot> slot(std::uint64_t bytes) {
    auto acquired = pool_->acquire(bytes, kPatience);
    EXPECT_TRUE(succeeds(acquired));
    return acquired ? *acquired : nullptr;
  }

  std::shared_ptr<DevicePool> pool_;
};

TEST_F(DevicePoolTest, SmallSlotsShareASegmentAndLargeOnesHaveOneEach) {
  const auto first = slot(1000);
  const auto second = slot(1000);
  EXPECT_EQ(first->size_bytes(), 4096u);
  EXPECT_EQ(first->segment(), second->segment());
  EXPECT_NE(first->address(), second->address());
  EXPECT_EQ(first->id().segment, DevicePool::kFirstSegment);
  const auto third = slot(3 * kMiB);
  EXPECT_EQ(third->size_bytes(), 4 * kMiB);
  EXPECT_EQ(third->segment()->size_bytes(), 4 * kMiB);
  EXPECT_EQ(pool_->stats().resident_bytes, 8 * kMiB);
  EXPECT_EQ(pool_->stats().used_bytes, 4 * kMiB + 2 * 4096);
  ASSERT_EQ(fill(third->address() + 4 * kMiB - 64, 7, 64), Status::success);
  EXPECT_EQ(byte_at(third->address() + 4 * kMiB - 1), 7);
}

TEST_F(DevicePoolTest, ASlotThatNobodyHoldsIsUsedAgain) {
  auto first = slot(4 * kMiB);
  const auto id = first->id();
  first.reset();
  const auto again = slot(4 * kMiB);
  EXPECT_EQ(again->id().segment, id.segment);
  EXPECT_GT(again->id().generation, id.generation);
  EXPECT_EQ(fake.calls("cuMemCreate"), 1u);
}

TEST_F(DevicePoolTest, ALinkHoldsASlotUntilItIsReturned) {
  const auto link = pool_->add_link("reader");
  auto sent = slot(8 * kMiB);
  const auto id = sent->id();
  ASSERT_EQ(pool_->give(link, *sent), DevicePool::Window::open);
  sent.reset();
  EXPECT_EQ(pool_->stats().used_bytes, 8 * kMiB);
  EXPECT_FALSE(pool_->take_return(link, {id.segment, id.slot, id.generation + 1}));
  EXPECT_EQ(pool_->stats().holds.ignored_returns, 1u);
  EXPECT_TRUE(pool_->take_return(link, id));
  EXPECT_EQ(pool_->stats().used_bytes, 0u);
  EXPECT_FALSE(pool_->take_return(link, id)) << "once";
}

TEST_F(DevicePoolTest, ALinkHasAtMostHalf) {
  const auto link = pool_->add_link("reader");
  std::vector<std::shared_ptr<DeviceSlot>> slots;
  int given = 0;
  for (int i = 0; i < 8; ++i) {
    slots.push_back(slot(8 * kMiB));
    given += pool_->give(link, *slots.back()) == DevicePool::Window::open ? 1 : 0;
  }
  EXPECT_EQ(given, 4);
}

TEST_F(DevicePoolTest, AFullPoolSaysWhoHoldsMost) {
  const auto link = pool_->add_link("the slow reader");
  std::vector<std::shared_ptr<DeviceSlot>> all;
  while (all.size() * 8 * kMiB < kCapBytes) all.push_back(slot(8 * kMiB));
  ASSERT_EQ(pool_->give(link, *all.front()), DevicePool::Window::open);
  EXPECT_TRUE(
      fails_with(pool_->acquire(1, kPatience), ErrorCode::resource_exhausted, "the slow reader"));
  EXPECT_TRUE(
      fails_with(pool_->acquire(1, kPatience), ErrorCode::resource_exhausted, "device_cap_bytes"));
  EXPECT_TRUE(
      fails_with(pool_->acquire(kCapBytes + 1, kPatience), ErrorCode::message_too_large, "cuda:0"));
}

TEST_F(DevicePoolTest, ALinkThatFailedKeepsItsSlotsUntilItsPeerIsProvedDead) {
  const auto link = pool_->add_link("reader");
  auto sent = slot(4 * kMiB);
  ASSERT_EQ(pool_->give(link, *sent), DevicePool::Window::open);
  pool_->end_link(link, Death::not_proved);
  EXPECT_EQ(pool_->give(link, *sent), DevicePool::Window::closed);
  sent.reset();
  EXPECT_EQ(pool_->stats().holds.quarantined, 1u);
  EXPECT_EQ(pool_->stats().used_bytes, 4 * kMiB);
  pool_->end_link(link, Death::proved);
  EXPECT_EQ(pool_->stats().used_bytes, 0u);
}

TEST_F(DevicePoolTest, IdleSegmentsGoAndPeersCanBeTold) {
  auto used = slot(4 * kMiB);
  auto idle = slot(8 * kMiB);
  const std::weak_ptr<const cuda::DeviceSegment> segment = idle->segment();
  EXPECT_FALSE(pool_->next_trim());
  idle.reset();
  const auto due = pool_->next_trim();
  ASSERT_TRUE(due);
  pool_->trim(*due - 1ms);
  EXPECT_FALSE(segment.expired());
  pool_->trim(*due);
  EXPECT_TRUE(segment.expired());
  settle();
  EXPECT_EQ(fake.calls("cuMemRelease"), 1u);
  EXPECT_EQ(pool_->stats().resident_bytes, 4 * kMiB);
}

TEST_F(DevicePoolTest, IdleSegmentsMakeRoomForAnotherSize) {
  auto first = slot(32 * kMiB);
  auto second = slot(32 * kMiB);
  const std::weak_ptr<const cuda::DeviceSegment> segment = first->segment();
  first.reset();
  EXPECT_NE(slot(1), nullptr);
  EXPECT_TRUE(segment.expired());
}

TEST_F(DevicePoolTest, AFullGpuGetsTheIdleOnesBackOnce) {
  auto idle = slot(8 * kMiB);
  const std::weak_ptr<const cuda::DeviceSegment> segment = idle->segment();
  idle.reset();
  fake.fail("cuMemCreate", static_cast<int>(Status::out_of_memory), fake.calls("cuMemCreate") + 1);
  EXPECT_NE(slot(4 * kMiB), nullptr);
  EXPECT_TRUE(segment.expired());
  fake.fail("cuMemCreate", static_cast<int>(Status::out_of_memory), 0);
  EXPECT_TRUE(fails_with(pool_->acquire(16 * kMiB, kPatience), ErrorCode::resource_exhausted,
                         "CUDA_ERROR_OUT_OF_MEMORY"));
  fake.fail("cuMemCreate", 0, 0);
  EXPECT_NE(slot(16 * kMiB), nullptr);
}

/// Blocks the device thread until the gate is opened, also where a test ends before that.
class Gate {
 public:
  explicit Gate(cuda::DeviceThread& thread) {
    EXPECT_TRUE(succeeds(thread.post([open = open_] { open->wait(false); })));
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() { open(); }
  void open() {
    *open_ = true;
    open_->notify_all();
  }

 private:
  const std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

TEST_F(DevicePoolTest, ASegmentThatArrivesAfterTheDeadlineIsThereForTheNextCall) {
  Gate gate(*thread);
  EXPECT_TRUE(fails_with(pool_->acquire(kCapBytes, 1ms), ErrorCode::timeout, "device thread"));
  EXPECT_TRUE(fails_with(pool_->acquire(kCapBytes, 0ms), ErrorCode::timeout, "device thread"));
  gate.open();
  settle();
  EXPECT_TRUE(succeeds(pool_->acquire(kCapBytes, 0ms)));
  EXPECT_EQ(fake.calls("cuMemCreate"), 1u);
}

TEST_F(DevicePoolTest, ThoseThatWaitForOneSizeShareASegment) {
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<DeviceSlot>> slots(8);
  {
    const Gate gate(*thread);
    for (auto& each : slots) threads.emplace_back([&] { each = slot(1); });
    ASSERT_TRUE(eventually([&] { return pool_->stats().resident_bytes != 0; }));
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(fake.calls("cuMemCreate"), 1u);
}

TEST_F(DevicePoolTest, AllThatWaitHearWhyThereIsNone) {
  fake.fail("cuMemMap", static_cast<int>(Status::not_supported), 0);
  std::vector<std::thread> threads;
  {
    const Gate gate(*thread);
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        EXPECT_TRUE(fails_with(pool_->acquire(1, kPatience), ErrorCode::not_supported, "cuMemMap"));
      });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(pool_->stats().resident_bytes, 0u);
}

TEST_F(DevicePoolTest, OneThatEndsWhileASegmentIsMadeDropsIt) {
  {
    Gate gate(*thread);
    EXPECT_TRUE(fails_with(pool_->acquire(kCapBytes, 0ms), ErrorCode::timeout));
    pool_.reset();
  }
  settle();
  settle();  // the drops of the first job were posted behind it
  EXPECT_EQ(fake.calls("cuMemRelease"), fake.calls("cuMemCreate"));
}

TEST_F(DevicePoolTest, ALostContextIsNamed) {
  slot(8 * kMiB).reset();
  fake.lose(0, static_cast<int>(Status::illegal_address));
  EXPECT_TRUE(fails_with(pool_->acquire(1, kPatience), ErrorCode::device_lost));
  EXPECT_EQ(context->loss(), Status::illegal_address);
  EXPECT_TRUE(fails_with(pool_->acquire(8 * kMiB, kPatience), ErrorCode::device_lost))
      << "a slot that is free";
  const std::uint64_t calls = fake.calls("cuMemCreate");
  EXPECT_TRUE(fails_with(pool_->acquire(1, kPatience), ErrorCode::device_lost,
                         "CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(fake.calls("cuMemCreate"), calls);
}

TEST_F(DevicePoolTest, ManyThreadsNeverShareASlotAndStayBelowTheCap) {
  std::mutex mutex;
  std::set<std::uint64_t> in_use;
  std::vector<std::thread> threads;
  for (unsigned n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      for (unsigned i = 0; i < 100; ++i) {
        const auto got = pool_->acquire(((n + i) % 3 + 1) * kMiB / 2, kPatience);
        if (!got) {
          EXPECT_EQ(got.error().code, ErrorCode::resource_exhausted);
          continue;
        }
        {
          const std::lock_guard lock(mutex);
          EXPECT_TRUE(in_use.insert((*got)->address()).second);
          EXPECT_LE(pool_->stats().resident_bytes, kCapBytes);
        }
        const std::lock_guard lock(mutex);
        in_use.erase((*got)->address());
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(pool_->stats().used_bytes, 0u);
}

TEST_F(DevicePoolTest, AForkedChildLeavesThePoolAlone) {
  auto kept = slot(4 * kMiB);
  slot(8 * kMiB).reset();  // one is free
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    const auto refused = pool_->acquire(8 * kMiB, kPatience);
    if (refused || refused.error().code != ErrorCode::forked) return 2;
    kept.reset();
    pool_.reset();
    return fake.calls(nullptr) == before ? 0 : 1;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_EQ(pool_->stats().used_bytes, 4 * kMiB);
}

}  // namespace
}  // namespace tendon::test
