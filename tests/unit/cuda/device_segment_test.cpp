// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that two processes map, on the double of the driver.
#include "cuda/device_segment.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "support/child.hpp"
#include "support/cuda/gpu.hpp"

namespace tendon::test {
namespace {

using cuda::Status;
using v0::detail::OwnedFd;

using DeviceSegments = GpuFixture;

TEST_F(DeviceSegments, PeersReadWhatTheOwnerWrote) {
  const Segment own = create().value();
  const Segment theirs = import(own->descriptor()).value();
  EXPECT_NE(own->address(), theirs->address());
  EXPECT_FALSE(theirs->descriptor());
  ASSERT_EQ(fill(own->address() + 4096, 0x5a, 64), Status::success);
  EXPECT_EQ(byte_at(theirs->address() + 4096), 0x5a);
}

TEST_F(DeviceSegments, PeersDoNotWrite) {
  const Segment own = create().value();
  const Segment theirs = import(own->descriptor()).value();
  EXPECT_EQ(fill(theirs->address(), 1, 64), Status::invalid_value);
  EXPECT_EQ(context->loss(), Status::success);
}

TEST_F(DeviceSegments, TheMemoryOutlivesItsOwner) {
  Segment own = create().value();
  ASSERT_EQ(fill(own->address(), 0x33, 64), Status::success);
  const Segment theirs = import(own->descriptor()).value();
  own.reset();
  settle();
  EXPECT_EQ(byte_at(theirs->address()), 0x33);
}

TEST_F(DeviceSegments, WhatIsNoMemoryOfAGpuIsRefused) {
  const OwnedFd file(memfd_create("host memory", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), kSegmentBytes), 0);
  const OwnedFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const OwnedFd* descriptor : {&file, &socket})
    EXPECT_TRUE(fails_with(import(*descriptor), ErrorCode::protocol_violation, "a peer"));
  EXPECT_TRUE(fails_with(import(OwnedFd()), ErrorCode::protocol_violation, "a peer"));
  EXPECT_EQ(context->loss(), Status::success);
}

TEST_F(DeviceSegments, AnotherSizeThanItHasIsRefused) {
  const Segment own = create(2 * kSegmentBytes).value();
  for (const std::uint64_t bytes : {std::uint64_t{0}, kSegmentBytes - 4096})
    EXPECT_TRUE(fails_with(import(own->descriptor(), bytes), ErrorCode::protocol_violation,
                           std::to_string(bytes)));
  EXPECT_TRUE(fails_with(import(own->descriptor(), 4 * kSegmentBytes),
                         ErrorCode::protocol_violation, "cuMemMap"));
}

class TwoGpus : public GpuFixture {
 protected:
  void SetUp() override {
    fake.reset();  // it reads the variable
    GpuFixture::SetUp();
  }

 private:
  const Variable devices_{"TENDON_CUDA_DOUBLE_DEVICES", "2"};
};

TEST_F(TwoGpus, MemoryOfAnotherThanWasSaidIsRefused) {
  const auto second = retain(1);
  EXPECT_NE(second->uuid().bytes, context->uuid().bytes);
  EXPECT_EQ(to_string(second->device()), "cuda:1");
  const Segment first = create().value();
  context = second;
  EXPECT_TRUE(fails_with(import(first->descriptor()), ErrorCode::protocol_violation, "cuda:1"));
}

// Whichever call fails, the memory that was made before is released.
TEST_F(DeviceSegments, OneThatCannotBeMadeLeavesNothingBehind) {
  for (const char* call : {"cuMemCreate", "cuMemExportToShareableHandle", "cuMemAddressReserve",
                           "cuMemMap", "cuMemSetAccess"}) {
    SCOPED_TRACE(call);
    const auto released = [&] {
      return std::pair(fake.calls("cuMemRelease"), fake.calls("cuMemAddressFree"));
    };
    const auto before = released();
    const std::uint64_t created = fake.calls("cuMemCreate");
    const std::uint64_t reserved = fake.calls("cuMemAddressReserve");
    fake.fail(call, static_cast<int>(Status::out_of_memory), 0);
    EXPECT_TRUE(fails_with(create(), ErrorCode::resource_exhausted, call));
    fake.fail(call, 0, 0);
    settle();
    const bool was_created = std::string_view(call) != "cuMemCreate";
    const bool was_reserved =
        std::string_view(call) == "cuMemMap" || std::string_view(call) == "cuMemSetAccess";
    EXPECT_EQ(fake.calls("cuMemCreate"), created + 1);
    EXPECT_EQ(fake.calls("cuMemAddressReserve"),
              reserved + (was_reserved || std::string_view(call) == "cuMemAddressReserve" ? 1 : 0));
    EXPECT_EQ(released(), std::pair(before.first + (was_created ? 1 : 0),
                                    before.second + (was_reserved ? 1 : 0)));
  }
}

TEST_F(DeviceSegments, ALostContextIsNamedAndReleasesWithoutAnError) {
  Segment own = create().value();
  fake.lose(0, static_cast<int>(Status::illegal_address));
  EXPECT_TRUE(fails_with(create(), ErrorCode::device_lost, "CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_EQ(context->loss(), Status::illegal_address);
  own.reset();
  settle();
}

TEST_F(DeviceSegments, AForkedChildCallsNothing) {
  Segment own = create().value();
  const int status = run_in_child([&] {
    const std::uint64_t before = fake.calls(nullptr);
    const cuda::PrimaryContext::Current current(*context);
    if (current.made() || current.made().error().code != ErrorCode::forked) return 1;
    own.reset();
    return fake.calls(nullptr) == before ? 0 : 2;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

TEST_F(DeviceSegments, AScopeRestoresWhatWasCurrent) {
  const cuda::DriverTable& table = context->table();
  cuda::CaptureMode mode = cuda::CaptureMode::global;
  ASSERT_EQ(table.thread_exchange_capture_mode(&mode), Status::success);
  {
    const cuda::PrimaryContext::Current current(*context);
    ASSERT_TRUE(succeeds(current.made()));
    mode = cuda::CaptureMode::relaxed;
    ASSERT_EQ(table.thread_exchange_capture_mode(&mode), Status::success);
    EXPECT_EQ(mode, cuda::CaptureMode::relaxed);
  }
  cuda::ContextHandle popped = nullptr;
  EXPECT_EQ(table.context_pop(&popped), Status::invalid_context) << "none was current before";
  mode = cuda::CaptureMode::relaxed;
  ASSERT_EQ(table.thread_exchange_capture_mode(&mode), Status::success);
  EXPECT_EQ(mode, cuda::CaptureMode::global);
}

}  // namespace
}  // namespace tendon::test
