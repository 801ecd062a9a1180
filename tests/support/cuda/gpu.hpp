// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "cuda/device_segment.hpp"
#include "cuda/device_thread.hpp"
#include "cuda/primary_context.hpp"
#include "support/cuda/loaded_double.hpp"
#include "support/expect.hpp"

namespace tendon::test {

/// A process that uses GPUs of the double as Tendon does, by its device thread.
class GpuFixture : public testing::Test {
 protected:
  using Segment = std::shared_ptr<cuda::DeviceSegment>;

  void SetUp() override {
    auto loaded = cuda::Driver::load(TENDON_CUDA_DOUBLE);
    ASSERT_TRUE(succeeds(loaded));
    driver = std::move(loaded).value();
    thread = std::make_unique<cuda::DeviceThread>(*driver);
    context = retain(0);
  }
  void TearDown() override {
    context.reset();
    thread.reset();
    fake.reset();
  }

  [[nodiscard]] std::shared_ptr<cuda::PrimaryContext> retain(int ordinal) {
    auto retained = thread->run(
        [&] { return cuda::PrimaryContext::retain(*driver, *thread, ordinal); }, kPatience);
    EXPECT_TRUE(succeeds(retained));
    return retained ? *retained : nullptr;
  }
  [[nodiscard]] Result<Segment> create(std::uint64_t bytes = kSegmentBytes) {
    return thread->run([&] { return cuda::DeviceSegment::create(context, *thread, bytes); },
                       kPatience);
  }
  [[nodiscard]] Result<Segment> import(const v0::detail::OwnedFd& descriptor,
                                       std::uint64_t bytes = kSegmentBytes) {
    return thread->run(
        [&] { return cuda::DeviceSegment::import(context, *thread, descriptor, bytes); },
        kPatience);
  }
  /// Waits until everything that was to be released is released.
  void settle() {
    ASSERT_TRUE(succeeds(thread->run([] { return Result<void>(); }, kPatience)));
  }
  /// Sets each byte, and waits until it is done.
  [[nodiscard]] cuda::Status fill(std::uint64_t address, unsigned char value, std::size_t bytes) {
    return on_stream([&](cuda::StreamHandle stream) {
      return context->table().set_bytes_async(address, value, bytes, stream);
    });
  }
  /// Returns the byte at an address.
  [[nodiscard]] int byte_at(std::uint64_t address) {
    unsigned char value = 0;
    EXPECT_EQ(on_stream([&](cuda::StreamHandle stream) {
                return context->table().copy_async(reinterpret_cast<std::uint64_t>(&value), address,
                                                   1, stream);
              }),
              cuda::Status::success);
    return value;
  }

  static constexpr std::uint64_t kSegmentBytes = std::uint64_t{2} << 20;

  CudaDouble fake;
  std::unique_ptr<cuda::Driver> driver;
  std::unique_ptr<cuda::DeviceThread> thread;
  std::shared_ptr<cuda::PrimaryContext> context;

 private:
  template <class Enqueue>
  cuda::Status on_stream(Enqueue enqueue) {
    const cuda::PrimaryContext::Current current(*context);
    EXPECT_TRUE(succeeds(current.made()));
    const cuda::DriverTable& table = context->table();
    cuda::StreamHandle stream = nullptr;
    EXPECT_EQ(table.stream_create(&stream, cuda::StreamFlags::non_blocking), cuda::Status::success);
    const cuda::Status status = enqueue(stream);
    EXPECT_EQ(table.stream_synchronize(stream), cuda::Status::success);
    EXPECT_EQ(table.stream_destroy(stream), cuda::Status::success);
    return status;
  }
};

}  // namespace tendon::test
