// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "support/cuda/loaded_double.hpp"
#include "support/expect.hpp"

namespace tendon::test {

using cuda::AccessFlags;
using cuda::ContextHandle;
using cuda::DeviceAddress;
using cuda::EventHandle;
using cuda::MemoryHandle;
using cuda::Status;
using cuda::StreamHandle;

/// A process that uses the double, with the primary context of device 0 current.
class DeviceFixture : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = cuda::Driver::load(TENDON_CUDA_DOUBLE);
    ASSERT_TRUE(succeeds(loaded));
    driver = std::move(loaded).value();
    ASSERT_TRUE(succeeds(driver->initialise()));
    ASSERT_EQ(api().primary_context_retain(&context, 0), Status::success);
    ASSERT_EQ(api().context_push(context), Status::success);
  }
  void TearDown() override { fake.reset(); }

  [[nodiscard]] const cuda::DriverTable& api() const { return driver->table(); }

  StreamHandle new_stream(cuda::StreamFlags flags = cuda::StreamFlags::non_blocking) {
    StreamHandle stream = nullptr;
    EXPECT_EQ(api().stream_create(&stream, flags), Status::success);
    return stream;
  }
  EventHandle new_event() {
    EventHandle event = nullptr;
    EXPECT_EQ(api().event_create(&event, cuda::EventFlags::untimed), Status::success);
    return event;
  }
  DeviceAddress new_memory(std::size_t bytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(api().memory_allocate(&address, bytes), Status::success);
    return address;
  }

  static cuda::AllocationProperties on_device(int device = 0) {
    cuda::AllocationProperties properties{};
    properties.type = cuda::AllocationType::pinned;
    properties.handle_types = cuda::HandleType::posix_descriptor;
    properties.location = {cuda::LocationType::device, device};
    return properties;
  }
  MemoryHandle new_handle(std::size_t bytes = kSegmentBytes) {
    const auto properties = on_device();
    MemoryHandle handle = 0;
    EXPECT_EQ(api().memory_create(&handle, bytes, &properties, 0), Status::success);
    return handle;
  }
  /// Maps the memory of a handle at an address.
  DeviceAddress map(MemoryHandle handle, AccessFlags access, std::size_t bytes = kSegmentBytes) {
    DeviceAddress address = 0;
    EXPECT_EQ(api().address_reserve(&address, bytes, 0, 0, 0), Status::success);
    EXPECT_EQ(api().memory_map(address, bytes, 0, handle, 0), Status::success);
    const cuda::AccessDescription description{{cuda::LocationType::device, 0}, access};
    EXPECT_EQ(api().memory_set_access(address, bytes, &description, 1), Status::success);
    return address;
  }

  /// Copies the number at an address, after all earlier work of the stream.
  std::uint64_t read(DeviceAddress address, StreamHandle stream) {
    std::uint64_t value = 0;
    EXPECT_EQ(api().copy_async(address_of(&value), address, sizeof(value), stream),
              Status::success);
    EXPECT_EQ(api().stream_synchronize(stream), Status::success);
    return value;
  }
  static DeviceAddress address_of(const void* memory) {
    return reinterpret_cast<DeviceAddress>(memory);
  }

  static constexpr std::size_t kSegmentBytes = std::size_t{2} << 20;

  CudaDouble fake;
  std::unique_ptr<cuda::Driver> driver;
  ContextHandle context = nullptr;
};

/// A word of this process that streams wait for and write.
class HostWord {
 public:
  HostWord(const cuda::DriverTable& api, unsigned flags = cuda::kRegisterMapped) : api_(api) {
    EXPECT_EQ(api_.host_register(&word_, sizeof(word_), flags), Status::success);
    EXPECT_EQ(api_.host_get_device_address(&address_, &word_, 0), Status::success);
  }
  HostWord(const HostWord&) = delete;
  HostWord& operator=(const HostWord&) = delete;
  ~HostWord() { api_.host_unregister(&word_); }

  [[nodiscard]] DeviceAddress address() const { return address_; }
  [[nodiscard]] std::uint64_t load() const {
    return std::atomic_ref(const_cast<std::uint64_t&>(word_)).load(std::memory_order_acquire);
  }
  void store(std::uint64_t value) {
    std::atomic_ref(word_).store(value, std::memory_order_release);
  }

 private:
  const cuda::DriverTable& api_;
  alignas(8) std::uint64_t word_ = 0;
  DeviceAddress address_ = 0;
};

}  // namespace tendon::test
