// SPDX-License-Identifier: Apache-2.0
// The GPU of a benchmark: what lies there, and when it does.
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
/// Threads: one at a time. Work is that of the calling thread's per-thread stream.
/// Errors:  not_supported without a driver, unsupported_device without that GPU, those of the
///          driver.
/// Blocks:  for the GPU.
/// Cost:    that of the copies.
class BenchDevice {
 public:
  /// Batches of at most `size_bytes` lie there, three at a time.
  [[nodiscard]] static Result<BenchDevice> use(Device device, std::uint64_t size_bytes);

  [[nodiscard]] Device device() const { return gpu_->context()->device(); }
  /// The batch on the GPU, which has made the copy.
  [[nodiscard]] Result<TensorDict> put(const TensorDict& host) const;
  /// Fills a tensor there with those bytes, which the GPU has copied.
  [[nodiscard]] Result<void> write(const Tensor& there, const Tensor& host) const;
  /// The bytes of a tensor there.
  [[nodiscard]] Result<Storage> bring_back(const Tensor& tensor) const;
  /// Returns when the GPU has done what the stream has.
  [[nodiscard]] Result<void> wait() const;

 private:
  BenchDevice(std::shared_ptr<detail::cuda::Gpu> gpu, std::uint64_t size_bytes);

  std::shared_ptr<detail::cuda::Gpu> gpu_;
  std::shared_ptr<detail::cuda::DevicePool> pool_;
};

/// "NVIDIA H200" and the version of CUDA that its driver is of, "13.0".
struct BenchDeviceFacts {
  Device device;
  std::string name;
  std::string driver;
};
/// The facts of the GPU that --device names; nothing: it names none, so all lies in host memory.
/// Errors: invalid_argument for another device, in `where`; those of BenchDevice::use().
[[nodiscard]] Result<std::optional<BenchDeviceFacts>> facts_of(const std::string& device,
                                                               std::string_view where);
/// Names the GPU in a row of a document.
void add_gpu(Value::Map& row, const BenchDeviceFacts& facts);

}  // namespace tendon::cli
