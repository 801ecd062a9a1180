// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <tendon/core/result.hpp>
#include <utility>

#include "channel/gpu_answer.hpp"
#include "cuda/gpu.hpp"

namespace tendon::v0::detail {

/// A GPU on which a receive wants its tensors; the device thread initialises it meanwhile.
///
/// Owns:    a share of the GPU, once it is found.
/// Threads: the device thread writes; any thread may read after the end.
/// Errors:  those of Gpus::use().
/// Blocks:  never. The first use of CUDA loads the library of its driver.
/// Cost:    a job of the device thread.
class SoughtGpu {
 public:
  /// `on_over` is called in the device thread. Errors: not_supported where there is no driver.
  [[nodiscard]] static Result<std::shared_ptr<const SoughtGpu>> begin(
      int ordinal, std::function<void()> on_over);

  [[nodiscard]] const GpuAnswer& answer() const noexcept { return answer_; }
  /// Precondition: it is over, without an error.
  [[nodiscard]] const std::shared_ptr<cuda::Gpu>& gpu() const noexcept { return gpu_; }

 private:
  SoughtGpu() = default;

  std::shared_ptr<cuda::Gpu> gpu_;
  GpuAnswer answer_;
};

}  // namespace tendon::v0::detail
