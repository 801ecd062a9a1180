// SPDX-License-Identifier: Apache-2.0
// GPUs of the double as a program uses them beside Tendon: memory, tensors, streams, and work that
// waits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tendon/pipe/pipe_options.hpp>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/tensor.hpp>
#include <thread>

#include "cuda/device_pools.hpp"
#include "cuda/gpus.hpp"
#include "support/batches.hpp"
#include "support/cuda/loaded_double.hpp"
#include "support/expect.hpp"

namespace tendon::test {

inline constexpr Device kGpu0{DeviceKind::cuda, 0};
inline constexpr Device kGpu1{DeviceKind::cuda, 1};

/// Memory on a GPU that belongs to the program, outside of the pools that pipes use.
class ProgramMemory {
 public:
  ProgramMemory() : pools_(std::uint64_t{1} << 28) {}

  [[nodiscard]] std::shared_ptr<cuda::Gpu> gpu(int ordinal) {
    auto used = cuda::process_gpus().value()->use(ordinal, kPatience);
    EXPECT_TRUE(succeeds(used));
    return *used;
  }
  [[nodiscard]] Storage allocate(std::uint64_t size_bytes, Device device) {
    auto slot =
        pools_.of(gpu(device.index))->acquire(std::max<std::uint64_t>(size_bytes, 1), kPatience);
    EXPECT_TRUE(succeeds(slot));
    auto* const data = reinterpret_cast<std::byte*>((*slot)->address());
    return {*slot, data, size_bytes, Access::read_write, Origin::here, device};
  }

 private:
  cuda::DevicePools pools_;
};

/// Calls that a program makes for its own GPUs.
class ProgramGpus {
 public:
  /// Copies a tensor to a GPU, without the code under test.
  [[nodiscard]] Tensor on_gpu(const Tensor& host, Device device = kGpu0) {
    const Storage memory = program.allocate(host.size_bytes(), device);
    void* const room = fake.writes(address(memory), memory.size_bytes());
    if (host.size_bytes() != 0) std::memcpy(room, host.bytes().data(), host.size_bytes());
    return Tensor::view(memory, 0, host.dtype(), host.shape()).value();
  }
  /// Copies a batch to a GPU, in one piece by Layout::aligned.
  [[nodiscard]] TensorDict packed_on_gpu(const TensorDict& host) {
    const TensorDict packed = packed_copy(host);
    const PackedView& view = *packed_view(packed);
    const std::uint64_t size = view.schema->layout(Layout::aligned).total_bytes;
    const Tensor bytes =
        on_gpu(Tensor::view(view.storage, 0, DType::u8, {static_cast<std::int64_t>(size)}).value());
    return make_packed(view.schema, Layout::aligned, bytes.storage()).value();
  }
  /// Reads the bytes of a tensor on a GPU, past all streams: the caller knows that they are there.
  [[nodiscard]] Tensor at_once(const Tensor& on_gpu) {
    Tensor host = Tensor::empty(on_gpu.dtype(), on_gpu.shape()).value();
    const void* const bytes =
        fake.reads(reinterpret_cast<std::uint64_t>(on_gpu.data()), on_gpu.size_bytes());
    EXPECT_NE(bytes, nullptr);
    if (bytes != nullptr && on_gpu.size_bytes() != 0)
      std::memcpy(host.mutable_bytes().data(), bytes, on_gpu.size_bytes());
    return host;
  }
  /// Reads them once the work of the per-thread stream is done.
  [[nodiscard]] Tensor read(const Tensor& on_gpu) {
    synchronize(on_gpu.device(), kStreamPerThread);
    return at_once(on_gpu);
  }
  void synchronize(Device device, void* stream) {
    const auto gpu = program.gpu(device.index);
    const cuda::PrimaryContext::Current current(*gpu->context());
    EXPECT_EQ(gpu->context()->table().stream_synchronize(static_cast<cuda::StreamHandle>(stream)),
              cuda::Status::success);
  }
  [[nodiscard]] cuda::StreamHandle make_stream(Device device = kGpu0) {
    const auto gpu = program.gpu(device.index);
    const cuda::PrimaryContext::Current current(*gpu->context());
    cuda::StreamHandle stream = nullptr;
    EXPECT_EQ(gpu->context()->table().stream_create(&stream, cuda::StreamFlags::non_blocking),
              cuda::Status::success);
    return stream;
  }
  static std::uint64_t address(const Storage& memory) {
    return reinterpret_cast<std::uint64_t>(memory.data());
  }

  CudaDouble fake{CudaDouble::World::as_it_is};
  ProgramMemory program;
};

/// Work on a stream that waits for the test.
class Gate {
 public:
  Gate(const CudaDouble& fake, void* stream) {
    EXPECT_EQ(fake.launch(static_cast<cuda::StreamHandle>(stream), &Gate::wait, this), 0);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate() {
    open();
    while (!is_past_.load()) std::this_thread::yield();
  }
  /// Ends the wait. A handler of signals may call it.
  void open() { is_open_.store(true); }
  /// Returns when the stream has reached the gate: a lost context then opens it.
  void wait_until_reached() const {
    while (!is_reached_.load()) std::this_thread::yield();
  }

 private:
  static void wait(void* self) {
    auto& gate = *static_cast<Gate*>(self);
    gate.is_reached_.store(true);
    while (!gate.is_open_.load()) std::this_thread::yield();
    gate.is_past_.store(true);
  }
  std::atomic<bool> is_open_{false};
  std::atomic<bool> is_reached_{false};
  std::atomic<bool> is_past_{false};
};

}  // namespace tendon::test
