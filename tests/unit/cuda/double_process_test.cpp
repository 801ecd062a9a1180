// SPDX-License-Identifier: Apache-2.0
// The start, the failures and the end of the double of the driver, and the calls that a capture
// forbids.
#include <array>
#include <thread>

#include "support/child.hpp"
#include "support/cuda/device_fixture.hpp"
#include "support/held.hpp"

namespace tendon::test {
namespace {

using cuda::CaptureMode;
using cuda::CaptureStatus;
using cuda::WaitCondition;

class DoubleProcess : public DeviceFixture {
 protected:
  CaptureStatus capture_of(StreamHandle stream) {
    CaptureStatus status = CaptureStatus::none;
    std::uint64_t id = 0;
    EXPECT_EQ(api().stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr),
              Status::success);
    return status;
  }
};

TEST(DoubleBeforeInit, AnswersThatItIsNot) {
  const CudaDouble fake;
  const auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
  const cuda::DriverTable& api = driver->table();
  int number = 0;
  ContextHandle context = nullptr;
  EXPECT_EQ(api.device_get_count(&number), Status::not_initialized);
  EXPECT_EQ(api.primary_context_retain(&context, 0), Status::not_initialized);
  EXPECT_EQ(api.driver_get_version(&number), Status::success);
  EXPECT_EQ(number, 13000);
}

TEST(DoubleBeforeInit, HasTheDevicesOfTheEnvironment) {
  const Variable devices("TENDON_CUDA_DOUBLE_DEVICES", "3");
  const Variable uuids("TENDON_CUDA_DOUBLE_UUIDS", "000102030405060708090a0b0c0d0e0f");
  const CudaDouble fake;
  const auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
  const cuda::DriverTable& api = driver->table();
  ASSERT_TRUE(succeeds(driver->initialise()));
  int count = 0;
  ASSERT_EQ(api.device_get_count(&count), Status::success);
  EXPECT_EQ(count, 3);
  cuda::Uuid first{};
  cuda::Uuid second{};
  ASSERT_EQ(api.device_get_uuid(&first, 0), Status::success);
  ASSERT_EQ(api.device_get_uuid(&second, 1), Status::success);
  for (std::size_t at = 0; at < first.bytes.size(); ++at) EXPECT_EQ(first.bytes[at], at);
  EXPECT_EQ(second.bytes.back(), 1);
  EXPECT_EQ(api.device_get_uuid(&first, 3), Status::invalid_device);
  std::array<char, 64> name{};
  ASSERT_EQ(api.device_get_name(name.data(), 64, 2), Status::success);
  EXPECT_STREQ(name.data(), "Double 2");
  int value = 0;
  ASSERT_EQ(api.device_get_attribute(&value, cuda::DeviceAttribute::posix_descriptors, 0),
            Status::success);
  EXPECT_EQ(value, 1);
}

TEST(DoubleBeforeInit, WithoutDevicesIsNotInitialised) {
  const Variable devices("TENDON_CUDA_DOUBLE_DEVICES", "0");
  const CudaDouble fake;
  const auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
  EXPECT_TRUE(fails_with(driver->initialise(), ErrorCode::unsupported_device, "NO_DEVICE"));
  EXPECT_FALSE(driver->is_in_use());
}

TEST_F(DoubleProcess, GivesAllBackWhenItBeginsAnew) {
  fake.reset();
  const Held before = Held::now();
  SetUp();
  const MemoryHandle handle = new_handle();
  map(handle, AccessFlags::read_write);
  HostWord gate(api());
  ASSERT_EQ(api().stream_wait_value64(new_stream(), gate.address(), 1, WaitCondition::at_least),
            Status::success);
  EXPECT_NE(Held::now(), before);
  fake.reset();
  EXPECT_EQ(Held::now(), before);
}

TEST_F(DoubleProcess, AForkedChildGetsNothing) {
  const StreamHandle stream = new_stream();
  const int status = run_in_child([&] {
    int count = 0;
    if (api().init(0) != Status::not_initialized) return 1;
    if (api().device_get_count(&count) != Status::not_initialized) return 2;
    if (api().stream_query(stream) != Status::not_initialized) return 3;
    return fake.launch(
               stream, [](void*) {}, nullptr) == 3
               ? 0
               : 4;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_EQ(api().stream_query(stream), Status::success) << "the parent goes on";
}

TEST_F(DoubleProcess, AStickyErrorEndsAll) {
  HostWord gate(api());
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(api().stream_wait_value64(stream, gate.address(), 1, WaitCondition::at_least),
            Status::success);
  ASSERT_EQ(api().event_record(event, stream), Status::success);
  Status waited = Status::success;
  std::thread waiting([&] {
    EXPECT_EQ(api().context_push(context), Status::success);
    waited = api().stream_synchronize(stream);
  });
  EXPECT_TRUE(eventually([&] { return fake.calls("cuStreamSynchronize") == 1; }));
  fake.lose(0, 700);
  waiting.join();
  EXPECT_EQ(waited, Status::illegal_address);
  EXPECT_EQ(api().event_query(event), Status::illegal_address);
  EXPECT_EQ(fake.launch(
                stream, [](void*) { FAIL() << "nothing runs any more"; }, nullptr),
            700);
  DeviceAddress address = 0;
  EXPECT_EQ(api().memory_allocate(&address, 8), Status::illegal_address);
  EXPECT_EQ(api().context_pop(nullptr), Status::success);
  EXPECT_TRUE(eventually([&] { return fake.pending(0) == 0; }));
}

TEST_F(DoubleProcess, AStickyErrorIsOfOneDevice) {
  const Variable devices("TENDON_CUDA_DOUBLE_DEVICES", "2");
  fake.reset();
  SetUp();
  ContextHandle second = nullptr;
  ASSERT_EQ(api().primary_context_retain(&second, 1), Status::success);
  fake.lose(1, 719);
  EXPECT_EQ(api().stream_query(new_stream()), Status::success);
  ASSERT_EQ(api().context_push(second), Status::success);
  StreamHandle stream = nullptr;
  EXPECT_EQ(api().stream_create(&stream, cuda::StreamFlags::non_blocking), Status::launch_failed);
  EXPECT_EQ(api().context_pop(nullptr), Status::success);
}

TEST_F(DoubleProcess, ACallFailsWhenATestWants) {
  fake.fail("cuMemCreate", 2, fake.calls("cuMemCreate") + 2);
  const auto properties = on_device();
  MemoryHandle handle = 0;
  EXPECT_EQ(api().memory_create(&handle, kSegmentBytes, &properties, 0), Status::success);
  EXPECT_EQ(api().memory_create(&handle, kSegmentBytes, &properties, 0), Status::out_of_memory);
  EXPECT_EQ(api().memory_create(&handle, kSegmentBytes, &properties, 0), Status::success);
  fake.fail("cuEventQuery", 716, 0);
  EXPECT_EQ(api().event_query(new_event()), Status::misaligned_address);
  EXPECT_EQ(api().memory_create(&handle, kSegmentBytes, &properties, 0), Status::misaligned_address)
      << "an error that loses the context has lost it";
}

TEST_F(DoubleProcess, ACallFailsWhenTheEnvironmentWants) {
  const Variable fails("TENDON_CUDA_DOUBLE_FAIL",
                       "cuMemImportFromShareableHandle=101,cuMemAlloc_v2=2@2");
  fake.reset();
  SetUp();
  int passed = -1;
  ASSERT_EQ(api().memory_export(&passed, new_handle(), cuda::HandleType::posix_descriptor, 0),
            Status::success);
  MemoryHandle imported = 0;
  EXPECT_EQ(api().memory_import(&imported, reinterpret_cast<void*>(std::intptr_t{passed}),
                                cuda::HandleType::posix_descriptor),
            Status::invalid_device);
  close(passed);
  DeviceAddress address = 0;
  EXPECT_EQ(api().memory_allocate(&address, 8), Status::success);
  EXPECT_EQ(api().memory_allocate(&address, 8), Status::out_of_memory);
  EXPECT_EQ(api().memory_allocate(&address, 8), Status::success);
}

TEST_F(DoubleProcess, AtItsEndSaysSo) {
  const DeviceAddress address = new_memory(8);
  fake.deinitialise();
  EXPECT_EQ(api().memory_free(address), Status::deinitialized);
  EXPECT_EQ(api().primary_context_release(0), Status::deinitialized);
}

TEST_F(DoubleProcess, AContextIsThereWhileItIsRetained) {
  ContextHandle again = nullptr;
  ASSERT_EQ(api().primary_context_retain(&again, 0), Status::success);
  EXPECT_EQ(again, context);
  EXPECT_EQ(api().primary_context_release(0), Status::success);
  EXPECT_EQ(api().context_push(context), Status::success);
  ContextHandle popped = nullptr;
  EXPECT_EQ(api().context_pop(&popped), Status::success);
  EXPECT_EQ(popped, context);
  EXPECT_EQ(api().context_pop(nullptr), Status::success) << "that of SetUp()";
  EXPECT_EQ(api().context_pop(nullptr), Status::invalid_context);
  EXPECT_EQ(api().primary_context_release(0), Status::success);
  EXPECT_EQ(api().primary_context_release(0), Status::invalid_context);
  EXPECT_EQ(api().context_push(context), Status::invalid_context);
  EXPECT_EQ(api().primary_context_retain(&again, 5), Status::invalid_device);
}

TEST_F(DoubleProcess, ACapturedStreamRunsNothing) {
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  EXPECT_EQ(capture_of(stream), CaptureStatus::none);
  ASSERT_EQ(fake.begin_capture(stream, static_cast<int>(CaptureMode::relaxed)), 0);
  EXPECT_EQ(capture_of(stream), CaptureStatus::active);
  ASSERT_EQ(fake.launch(
                stream, [](void*) { FAIL() << "it is captured"; }, nullptr),
            0);
  ASSERT_EQ(api().event_record(event, stream), Status::success);
  CaptureMode mode = CaptureMode::relaxed;
  ASSERT_EQ(api().thread_exchange_capture_mode(&mode), Status::success);
  EXPECT_EQ(mode, CaptureMode::global);
  EXPECT_EQ(api().event_query(event), Status::captured_event);
  std::size_t captured = 0;
  EXPECT_EQ(fake.end_capture(stream, &captured), 0);
  EXPECT_EQ(captured, 2U);
  EXPECT_EQ(capture_of(stream), CaptureStatus::none);
  ASSERT_EQ(api().thread_exchange_capture_mode(&mode), Status::success);
  EXPECT_EQ(mode, CaptureMode::relaxed);
}

TEST_F(DoubleProcess, AGlobalCaptureIsBrokenByAnotherThread) {
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(fake.begin_capture(stream, static_cast<int>(CaptureMode::global)), 0);
  std::thread other([&] {
    ASSERT_EQ(api().context_push(context), Status::success);
    CaptureMode mode = CaptureMode::relaxed;
    ASSERT_EQ(api().thread_exchange_capture_mode(&mode), Status::success);
    EXPECT_EQ(api().event_query(event), Status::success) << "a relaxed thread may";
    EXPECT_EQ(capture_of(stream), CaptureStatus::active);
    ASSERT_EQ(api().thread_exchange_capture_mode(&mode), Status::success);
    EXPECT_EQ(api().event_query(event), Status::stream_capture_unsupported);
  });
  other.join();
  EXPECT_EQ(capture_of(stream), CaptureStatus::invalidated);
  EXPECT_EQ(fake.launch(
                stream, [](void*) {}, nullptr),
            901);
  std::size_t captured = 0;
  EXPECT_EQ(fake.end_capture(stream, &captured), 901);
  EXPECT_EQ(fake.launch(
                stream, [](void*) {}, nullptr),
            0);
  EXPECT_EQ(api().stream_synchronize(stream), Status::success);
}

TEST_F(DoubleProcess, ACaptureOfAThreadIsBrokenByThatThreadAlone) {
  const StreamHandle stream = new_stream();
  const EventHandle event = new_event();
  ASSERT_EQ(fake.begin_capture(stream, static_cast<int>(CaptureMode::this_thread)), 0);
  std::thread other([&] { EXPECT_EQ(api().event_query(event), Status::success); });
  other.join();
  EXPECT_EQ(capture_of(stream), CaptureStatus::active);
  EXPECT_EQ(api().stream_query(new_stream()), Status::stream_capture_unsupported);
  EXPECT_EQ(capture_of(stream), CaptureStatus::invalidated);
  std::size_t captured = 0;
  EXPECT_EQ(fake.end_capture(stream, &captured), 901);
}

TEST_F(DoubleProcess, TheLegacyDefaultCanBeAskedBesideACapture) {
  const StreamHandle stream = new_stream(cuda::StreamFlags::blocking);
  ASSERT_EQ(fake.begin_capture(stream, static_cast<int>(CaptureMode::relaxed)), 0);
  CaptureStatus status = CaptureStatus::none;
  EXPECT_EQ(api().stream_get_capture_info(nullptr, &status, nullptr, nullptr, nullptr, nullptr),
            Status::stream_capture_implicit);
  EXPECT_EQ(capture_of(stream), CaptureStatus::active);
  std::size_t captured = 0;
  EXPECT_EQ(fake.end_capture(stream, &captured), 0);
  EXPECT_EQ(capture_of(nullptr), CaptureStatus::none);
}

TEST_F(DoubleProcess, TheLegacyDefaultBreaksACapture) {
  const StreamHandle stream = new_stream(cuda::StreamFlags::blocking);
  ASSERT_EQ(fake.begin_capture(stream, static_cast<int>(CaptureMode::relaxed)), 0);
  EXPECT_EQ(fake.launch(
                nullptr, [](void*) {}, nullptr),
            906);
  EXPECT_EQ(capture_of(stream), CaptureStatus::invalidated);
  std::size_t captured = 0;
  EXPECT_EQ(fake.end_capture(stream, &captured), 901);
}

}  // namespace
}  // namespace tendon::test
