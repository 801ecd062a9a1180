// SPDX-License-Identifier: Apache-2.0
// The GPU of a benchmark: the batches that lie there, and the waiting for its work.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/device.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <tendon/tensor/value.hpp>

#include "cuda/device_pool.hpp"
#include "cuda/gpu.hpp"

namespace tendon::cli {

/// A GPU that a benchmark keeps its batches on, in memory of its own.
///
/// Owns:    the pool of that memory.
/// Threads: one at a time. Work runs on the calling thread's per-thread stream.
/// Errors:  not_supported without a driver, unsupported_device without that GPU, those of the
///          driver.
/// Blocks:  for the GPU.
/// Cost:    that of the copies.
class BenchDevice {
 public:
  /// Makes room for three batches of at most `size_bytes` at a time.
  [[nodiscard]] static Result<BenchDevice> use(Device device, std::uint64_t size_bytes);

  [[nodiscard]] Device device() const { return gpu_->context()->device(); }
  /// Copies the batch to the GPU; returns when the copy is complete.
  [[nodiscard]] Result<TensorDict> put(const TensorDict& host) const;
  /// Copies the bytes of `host` to a tensor on the GPU; returns when the copy is complete.
  [[nodiscard]] Result<void> write(const Tensor& there, const Tensor& host) const;
  /// Copies the bytes of a tensor on the GPU to the host.
  [[nodiscard]] Result<Storage> bring_back(const Tensor& tensor) const;
  /// Returns when the GPU has finished the work of the stream.
  [[nodiscard]] Result<void> wait() const;

 private:
  BenchDevice(std::shared_ptr<detail::cuda::Gpu> gpu, std::uint64_t size_bytes);

  std::shared_ptr<detail::cuda::Gpu> gpu_;
  std::shared_ptr<detail::cuda::DevicePool> pool_;
};

/// Its name, "NVIDIA H200", and the CUDA version of its driver, "13.0".
struct BenchDeviceFacts {
  Device device;
  std::string name;
  std::string driver;
};
/// Returns the facts of the GPU that --device names; nothing where it names none, so that all lies
/// in host memory. Errors: invalid_argument for another device, in `where`; those of
/// BenchDevice::use().
[[nodiscard]] Result<std::optional<BenchDeviceFacts>> facts_of(const std::string& device,
                                                               std::string_view where);
/// Names the GPU in a row of a document.
void add_gpu(Value::Map& row, const BenchDeviceFacts& facts);

}  // namespace tendon::cli
