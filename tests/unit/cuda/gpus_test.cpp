// SPDX-License-Identifier: Apache-2.0
// The GPUs that a process uses, on the double of the driver.
#include "cuda/gpus.hpp"

#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/cuda/gpu_work.hpp"

namespace tendon::test {
namespace {

using cuda::Gpu;
using cuda::Gpus;
using cuda::Status;

/// A process that has not used CUDA; the second of its GPUs has a different UUID.
class GpusTest : public testing::Test {
 protected:
  static constexpr const char* kUuids =
      "00000000000000000000000000000000,000102030405060708090a0b0c0d0e0f";

  void SetUp() override {
    driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
    thread = std::make_unique<cuda::DeviceThread>(*driver);
    gpus = std::make_unique<Gpus>(*driver, *thread);
  }
  void TearDown() override {
    gpus.reset();
    thread.reset();
    fake.reset();
  }
  static cuda::Uuid second_uuid() {
    cuda::Uuid uuid{};
    for (std::size_t at = 0; at < uuid.bytes.size(); ++at)
      uuid.bytes[at] = static_cast<unsigned char>(at);
    return uuid;
  }

  const Variable devices{"TENDON_CUDA_DOUBLE_DEVICES", "2"};
  const Variable uuids{"TENDON_CUDA_DOUBLE_UUIDS", kUuids};
  CudaDouble fake;
  std::unique_ptr<cuda::Driver> driver;
  std::unique_ptr<cuda::DeviceThread> thread;
  std::unique_ptr<Gpus> gpus;
};

TEST_F(GpusTest, AGpuIsRetainedOnceAndKept) {
  auto first = gpus->use(0, kPatience).value();
  EXPECT_EQ(first->context()->ordinal(), 0);
  EXPECT_EQ(&first->thread(), thread.get());
  EXPECT_EQ(gpus->use(0, Deadline::now()).value(), first);
  EXPECT_NE(gpus->use(1, kPatience).value(), first);
  first.reset();
  EXPECT_TRUE(succeeds(thread->run([] { return Result<void>(); }, kPatience)));
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 2u);
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRelease_v2"), 0u);
}

TEST_F(GpusTest, ThreadsThatAskAtOnceGetOne) {
  const auto open = std::make_shared<std::atomic<bool>>(false);
  ASSERT_TRUE(succeeds(thread->post([open] { open->wait(false); })));
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<Gpu>> all(8);
  std::atomic<int> asking = 0;
  for (auto& each : all)
    threads.emplace_back([&] {
      ++asking;
      each = gpus->use(1, kPatience).value();
    });
  EXPECT_TRUE(eventually([&] { return asking == 8; }));
  *open = true;
  open->notify_all();
  for (std::thread& each : threads) each.join();
  for (const auto& each : all) EXPECT_EQ(each, all.front());
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 1u);
}

TEST_F(GpusTest, AnErrorIsNotForGood) {
  fake.fail("cuDevicePrimaryCtxRetain", static_cast<int>(Status::out_of_memory), 1);
  EXPECT_TRUE(fails_with(gpus->use(0, kPatience), ErrorCode::resource_exhausted, "OUT_OF_MEMORY"));
  EXPECT_TRUE(succeeds(gpus->use(0, kPatience)));
  EXPECT_TRUE(fails_with(gpus->use(2, kPatience), ErrorCode::unsupported_device, "cuda:2"));
}

TEST_F(GpusTest, AGpuThatIsLateIsThereForTheNextCall) {
  const auto open = std::make_shared<std::atomic<bool>>(false);
  // The device thread is busy in the middle of it.
  ASSERT_TRUE(succeeds(thread->post([open] { open->wait(false); })));
  EXPECT_TRUE(fails_with(gpus->use(0, kBriefly), ErrorCode::timeout, "device thread"));
  EXPECT_TRUE(fails_with(gpus->use(0, Deadline::now()), ErrorCode::timeout));
  *open = true;
  open->notify_all();
  EXPECT_TRUE(succeeds(gpus->use(0, kPatience)));
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 1u);
}

TEST_F(GpusTest, ALostContextAnswersItsError) {
  const auto gpu = gpus->use(0, kPatience).value();
  fake.lose(0, static_cast<int>(Status::illegal_address));
  EXPECT_TRUE(fails_with(gpu->take_event(), ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(gpus->use(0, kPatience), ErrorCode::device_lost, "ILLEGAL_ADDRESS"));
  EXPECT_TRUE(
      fails_with(gpus->find(cuda::Uuid{}, kPatience), ErrorCode::device_lost, "ILLEGAL_ADDRESS"));
  EXPECT_TRUE(succeeds(gpus->use(1, kPatience))) << "it is of one GPU";
}

TEST_F(GpusTest, AProcessThatHasNotUsedCudaIsNotMadeTo) {
  EXPECT_TRUE(fails_with(gpus->find(second_uuid(), kPatience), ErrorCode::unsupported_device,
                         "device=\"cpu\""));
  EXPECT_TRUE(fails_with(gpus->find(second_uuid(), kPatience), ErrorCode::unsupported_device,
                         "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"));
  EXPECT_EQ(fake.calls("cuInit"), 0u);
}

TEST_F(GpusTest, FindsTheGpuThatAPeerNames) {
  ASSERT_EQ(driver->table().init(0), Status::success) << "by another library";
  const auto found = gpus->find(second_uuid(), kPatience);
  ASSERT_TRUE(succeeds(found));
  EXPECT_EQ((*found)->context()->ordinal(), 1);
  EXPECT_EQ((*found)->context()->uuid().bytes, second_uuid().bytes);
  const std::uint64_t read = fake.calls("cuDeviceGetUuid_v2");
  EXPECT_EQ(gpus->find(second_uuid(), kPatience).value(), *found);
  EXPECT_EQ(fake.calls("cuDeviceGetUuid_v2"), read) << "the list is read once";
}

TEST_F(GpusTest, NamesTheGpuThatIsNotHere) {
  ASSERT_EQ(driver->table().init(0), Status::success);
  cuda::Uuid other = second_uuid();
  other.bytes.back() = 0xff;
  const auto found = gpus->find(other, kPatience);
  EXPECT_TRUE(
      fails_with(found, ErrorCode::unsupported_device, "GPU-00010203-0405-0607-0809-0a0b0c0d0eff"));
  EXPECT_TRUE(fails_with(found, ErrorCode::unsupported_device, "CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(fake.calls("cuDevicePrimaryCtxRetain"), 0u);
}

TEST_F(GpusTest, AListThatCannotBeReadIsReadAgain) {
  ASSERT_EQ(driver->table().init(0), Status::success);
  fake.fail("cuDeviceGetUuid_v2", static_cast<int>(Status::not_supported), 2);
  EXPECT_TRUE(fails_with(gpus->find(second_uuid(), kPatience), ErrorCode::not_supported,
                         "cuDeviceGetUuid_v2"));
  EXPECT_TRUE(succeeds(gpus->find(second_uuid(), kPatience)));
}

TEST_F(GpusTest, AForkedChildCallsNothing) {
  ASSERT_TRUE(succeeds(gpus->use(0, kPatience)));
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    const auto used = gpus->use(0, kPatience);
    if (used || used.error().code != ErrorCode::forked) return 1;
    const auto found = gpus->find(cuda::Uuid{}, kPatience);
    if (found || found.error().code != ErrorCode::forked) return 2;
    gpus.reset();
    return fake.calls(nullptr) == before ? 0 : 3;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST(ProcessGpus, AreOneListForTheProcess) {
  const CudaDouble fake;
  const Variable on("TENDON_CUDA", nullptr);
  const Variable library("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE);
  const int status = run_in_child([] {
    const auto gpus = cuda::process_gpus();
    if (!gpus || cuda::process_gpus().value() != *gpus) return 1;
    const auto gpu = (*gpus)->use(0, kPatience);
    return gpu && &(*gpu)->thread() == cuda::process_device_thread().value() ? 0 : 2;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

class GpuEvents : public GpuWorkFixture {};

TEST_F(GpuEvents, AreUsedAgain) {
  const auto first = gpu->take_event().value();
  const auto second = gpu->take_event().value();
  EXPECT_NE(first, second);
  gpu->put_event(first);
  EXPECT_EQ(gpu->take_event().value(), first);
  EXPECT_EQ(fake.calls("cuEventCreate"), 2u);
  gpu->put_event(first);
  gpu->put_event(second);
  gpu.reset();
  settle();
  EXPECT_EQ(fake.calls("cuEventDestroy_v2"), 2u);
}

TEST_F(GpuEvents, ThatCannotBeMadeAreErrors) {
  fake.fail("cuEventCreate", static_cast<int>(Status::out_of_memory), 1);
  EXPECT_TRUE(fails_with(gpu->take_event(), ErrorCode::resource_exhausted, "cuEventCreate"));
  EXPECT_TRUE(succeeds(gpu->take_event()));
}

TEST_F(GpuEvents, EndWithALostContext) {
  gpu->put_event(gpu->take_event().value());
  fake.lose(0, static_cast<int>(Status::illegal_address));
  EXPECT_TRUE(fails_with(create(), ErrorCode::device_lost)) << "which notes it";
  gpu.reset();
  settle();
  EXPECT_EQ(fake.calls("cuEventDestroy_v2"), 0u);
}

TEST_F(GpuEvents, OfTheParentAreLeftToIt) {
  gpu->put_event(gpu->take_event().value());
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    gpu.reset();
    return fake.calls(nullptr) == before ? 0 : 1;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

}  // namespace
}  // namespace tendon::test
