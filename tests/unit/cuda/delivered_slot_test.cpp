// SPDX-License-Identifier: Apache-2.0
// The life of a slot that the program reads on a GPU, on the double of the driver.
#include "cuda/delivered_slot.hpp"

#include <thread>

#include "cuda/device_pool.hpp"
#include "support/child.hpp"
#include "support/cuda/gpu_work.hpp"

namespace tendon::test {
namespace {

using cuda::kPerThreadStream;
using cuda::Status;
using cuda::StreamHandle;

class DeliveredSlotTest : public GpuWorkFixture {
 protected:
  static constexpr std::uint64_t kBytes = std::uint64_t{4} << 20;

  void SetUp() override {
    GpuWorkFixture::SetUp();
    pool = std::make_shared<cuda::DevicePool>(context, *thread, 4 * kBytes);
  }
  void TearDown() override {
    open();
    EXPECT_TRUE(eventually([&] { return pool->stats().used_bytes == 0; }));
    pool.reset();
    GpuWorkFixture::TearDown();
  }
  [[nodiscard]] std::shared_ptr<const void> delivered_on(StreamHandle stream) {
    return cuda::deliver(gpu, pool->acquire(kBytes, kPatience).value(), stream);
  }
  [[nodiscard]] bool is_used() const { return pool->stats().used_bytes == kBytes; }
  [[nodiscard]] bool is_free_eventually() {
    return eventually([&] { return pool->stats().used_bytes == 0; });
  }

  std::shared_ptr<cuda::DevicePool> pool;
};

TEST_F(DeliveredSlotTest, StaysUntilTheGpuHasReachedTheDrop) {
  const StreamHandle stream = new_stream();
  auto owner = delivered_on(stream);
  auto another = owner;
  block(stream);
  owner.reset();
  EXPECT_EQ(fake.calls("cuEventRecord"), 0u) << "it is shared";
  another.reset();
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_TRUE(is_used());
  open();
  EXPECT_TRUE(is_free_eventually());
}

TEST_F(DeliveredSlotTest, DoesNotWaitForWhatIsEnqueuedAfterTheDrop) {
  const StreamHandle stream = new_stream();
  delivered_on(stream).reset();
  block(stream);
  EXPECT_TRUE(is_free_eventually());
}

TEST_F(DeliveredSlotTest, OnTheStreamOfAThreadMayBeDroppedInAnother) {
  block(always(kPerThreadStream));
  auto owner = delivered_on(always(kPerThreadStream));
  std::thread([&] { owner.reset(); }).join();
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_TRUE(is_used());
  open();
  EXPECT_TRUE(is_free_eventually());
}

TEST_F(DeliveredSlotTest, DroppedInACaptureWaitsForItsEnd) {
  const StreamHandle stream = new_stream();
  auto owner = delivered_on(stream);
  block(stream);
  begin_capture(stream, cuda::CaptureMode::global);
  owner.reset();
  EXPECT_TRUE(asks_often("cuStreamGetCaptureInfo_v2"));
  EXPECT_TRUE(is_used());
  end_capture(stream);
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_TRUE(is_used());
  open();
  EXPECT_TRUE(is_free_eventually());
}

TEST_F(DeliveredSlotTest, OnTheStreamOfAThreadDroppedInItsCaptureWaitsForItsEnd) {
  const StreamHandle stream = always(kPerThreadStream);
  auto owner = delivered_on(stream);
  block(stream);
  begin_capture(stream);
  owner.reset();
  EXPECT_TRUE(asks_often("cuStreamGetCaptureInfo_v2"));
  EXPECT_TRUE(is_used());
  end_capture(stream);
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_TRUE(is_used());
  open();
  EXPECT_TRUE(is_free_eventually());
}

TEST_F(DeliveredSlotTest, OfALostContextIsFree) {
  const StreamHandle stream = new_stream();
  auto owner = delivered_on(stream);
  block(stream);
  fake.lose(0, static_cast<int>(Status::illegal_address));
  owner.reset();
  EXPECT_TRUE(is_free_eventually());
}

TEST_F(DeliveredSlotTest, AForkedChildCallsNothing) {
  const StreamHandle stream = new_stream();
  auto owner = delivered_on(stream);
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    owner.reset();
    return fake.calls(nullptr) == before ? 0 : 1;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_TRUE(is_used());
}

}  // namespace
}  // namespace tendon::test
