// SPDX-License-Identifier: Apache-2.0
// The gather kernel on the double of the driver, which runs each thread of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "cuda/stream_work.hpp"
#include "support/cuda/gpu_work.hpp"
#include "support/log_lines.hpp"

namespace tendon::test {
namespace {

using cuda::GatherEntry;
using cuda::Status;
using cuda::StreamHandle;
using cuda::StreamWork;

constexpr std::byte kUntouched{0xee};

class Gather : public GpuWorkFixture {
 protected:
  void SetUp() override {
    GpuWorkFixture::SetUp();
    target = create().value();
    std::ranges::fill(bytes_of(target), kUntouched);
    std::size_t at = 0;
    for (std::byte& byte : bytes_of(memory)) {
      byte = std::byte(at * 37 + at / 251);
      ++at;
    }
  }
  void TearDown() override {
    open();
    target.reset();
    GpuWorkFixture::TearDown();
  }
  /// All bytes of a segment, without regard to streams: no work is under way there.
  [[nodiscard]] std::span<std::byte> bytes_of(const Segment& segment) const {
    return {static_cast<std::byte*>(fake.writes(segment->address(), kSegmentBytes)), kSegmentBytes};
  }
  /// A piece from `memory` to `target`; updates the bytes that the target must then have.
  [[nodiscard]] GatherEntry piece(std::size_t to, std::size_t from, std::size_t size,
                                  std::vector<std::byte>& wanted) const {
    std::ranges::copy(bytes_of(memory).subspan(from, size), wanted.begin() + std::ptrdiff_t(to));
    return {target->address() + to, memory->address() + from, size};
  }
  [[nodiscard]] cuda::FunctionHandle kernel() const {
    auto function = gpu->gather_kernel().function(kPatience);
    EXPECT_TRUE(succeeds(function));
    return *function;
  }
  [[nodiscard]] Result<void> gather(const std::vector<GatherEntry>& pieces) {
    auto work = StreamWork::begin(gpu, new_stream(), "test").value();
    if (auto enqueued = work.gather(kernel(), pieces); !enqueued) return enqueued;
    return work.wait(kPatience);
  }
  [[nodiscard]] bool has(const std::vector<std::byte>& wanted) const {
    return std::ranges::equal(bytes_of(target), wanted);
  }

  Segment target;
  std::vector<std::byte> untouched = std::vector<std::byte>(kSegmentBytes, kUntouched);
};

TEST_F(Gather, PacksPiecesOfAnySizeFromAnyAddress) {
  auto wanted = untouched;
  std::vector<GatherEntry> pieces;
  std::size_t from = 0;
  std::size_t to = 0;
  for (const std::size_t size : {1, 2, 3, 15, 16, 17, 64, 1000, 4095, 4096, 4097, 8192, 20'000}) {
    for (const std::size_t shift : {0, 1, 2, 4, 8, 12}) {
      pieces.push_back(piece(to, from + shift, size, wanted));
      from = (from + size + 31) / 16 * 16;
      to = (to + size + 79) / 64 * 64;
    }
  }
  // Tests places that are not aligned, too.
  for (const std::size_t shift : {1, 4, 8}) {
    pieces.push_back(piece(to + shift, 16 * shift, 5000, wanted));
    to += 8192;
  }
  ASSERT_LE(pieces.size(), cuda::kMaxGatherEntries);
  ASSERT_TRUE(succeeds(gather(pieces)));
  EXPECT_TRUE(has(wanted));
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 1u);
}

TEST_F(Gather, PacksMorePiecesThanOneLaunchTakes) {
  auto wanted = untouched;
  std::vector<GatherEntry> pieces;
  for (std::size_t i = 0; i < 2 * cuda::kMaxGatherEntries + 1; ++i)
    pieces.push_back(piece(1024 * i, 700 * i, 650, wanted));
  ASSERT_TRUE(succeeds(gather(pieces)));
  EXPECT_TRUE(has(wanted));
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 3u);
}

TEST_F(Gather, OfPiecesWithoutBytesNothingIsEnqueued) {
  auto wanted = untouched;
  ASSERT_TRUE(succeeds(gather({})));
  ASSERT_TRUE(succeeds(gather({{0, 0, 0}, {0, 0, 0}})));
  EXPECT_EQ(fake.calls("cuLaunchKernel"), 0u);
  ASSERT_TRUE(succeeds(gather({{0, 0, 0}, piece(64, 1, 100, wanted), {0, 0, 0}})));
  EXPECT_TRUE(has(wanted));
}

TEST_F(Gather, IsDoneInTheOrderOfTheStreamAndKeepsItsMemoryUntilThen) {
  const StreamHandle stream = new_stream();
  Owner owner;
  block(stream);
  const auto function = kernel();
  {
    const cuda::PrimaryContext::Current current(*context);
    ASSERT_EQ(context->table().set_bytes_async(memory->address(), 7, 100, stream), Status::success);
  }
  {
    auto work = StreamWork::begin(gpu, stream, "test").value();
    std::vector<GatherEntry> pieces{{target->address(), memory->address(), 100}};
    ASSERT_TRUE(succeeds(work.gather(function, pieces)));
    pieces.clear();  // the driver has taken its parameters
    work.keep(owner.share());
  }
  {
    const cuda::PrimaryContext::Current current(*context);
    ASSERT_EQ(context->table().set_bytes_async(memory->address(), 8, 100, stream), Status::success);
  }
  EXPECT_TRUE(asks_often("cuEventQuery"));
  EXPECT_FALSE(owner.is_dropped());
  open();
  EXPECT_TRUE(owner.is_dropped_eventually());
  EXPECT_EQ(byte_at(target->address()), 7);
}

TEST_F(Gather, AnAddressThatTheGpuCannotReadLosesTheContext) {
  EXPECT_TRUE(fails_with(gather({{target->address(), memory->address() + kSegmentBytes - 8, 16}}),
                         ErrorCode::device_lost));
  EXPECT_TRUE(fails_with(gpu->gather_kernel().function(kPatience), ErrorCode::device_lost));
}

TEST_F(Gather, ALaunchThatTheDriverRefusesIsAnError) {
  fake.fail("cuLaunchKernel", static_cast<int>(Status::invalid_value), 2);
  auto wanted = untouched;
  ASSERT_TRUE(succeeds(gather({piece(0, 0, 10, wanted)})));
  EXPECT_TRUE(
      fails_with(gather({piece(64, 0, 10, wanted)}), ErrorCode::system, "cuLaunchKernel of 1"));
  EXPECT_TRUE(succeeds(gather({piece(64, 0, 10, wanted)})));
  EXPECT_TRUE(has(wanted));
}

// How the driver makes the kernel

TEST_F(Gather, IsMadeOnceForAllCallersByTheDeviceThread) {
  std::atomic<bool> is_held = true;
  ASSERT_TRUE(succeeds(thread->post([&] { is_held.wait(true); })));
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) callers.emplace_back([&] { EXPECT_NE(kernel(), nullptr); });
  EXPECT_TRUE(fails_with(gpu->gather_kernel().function(kBriefly), ErrorCode::timeout, "kernel"));
  EXPECT_EQ(fake.calls("cuModuleLoadData"), 0u);
  is_held = false;
  is_held.notify_all();
  for (std::thread& caller : callers) caller.join();
  EXPECT_NE(kernel(), nullptr);
  EXPECT_EQ(fake.calls("cuModuleLoadData"), 1u);
}

TEST_F(Gather, ADriverThatRefusesItIsNotAskedAgain) {
  const LogLines lines;
  for (const char* call : {"cuModuleGetFunction", "cuModuleLoadData"}) {
    fake.fail(call, static_cast<int>(Status::not_found), 0);
    const auto other = std::make_shared<cuda::Gpu>(context, *thread);
    const std::uint64_t before = fake.calls("cuModuleLoadData");
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(fails_with(other->gather_kernel().function(kPatience), ErrorCode::system, call));
    EXPECT_EQ(fake.calls("cuModuleLoadData"), before + 1);
  }
  EXPECT_TRUE(lines.have("cuda.gather small tensors on cuda:0 are copied one by one"));
}

TEST_F(Gather, AGpuThatHadNoMemoryForItIsAskedAgain) {
  fake.fail("cuModuleLoadData", static_cast<int>(Status::out_of_memory), 1);
  EXPECT_TRUE(fails_with(gpu->gather_kernel().function(kPatience), ErrorCode::resource_exhausted));
  EXPECT_NE(kernel(), nullptr);
}

}  // namespace
}  // namespace tendon::test
