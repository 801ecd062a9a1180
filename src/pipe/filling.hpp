// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/gpu_answer.hpp"
#include "channel/to_host.hpp"
#include "cuda/gpu.hpp"

namespace tendon::v0::detail {

/// A copy of a batch to host memory, written by its GPU for a caller that does not wait. The device
/// thread makes the copies once the caller's stream has done its earlier work, because a copy to
/// unregistered host memory blocks until then. It does other work between them.
///
///   behind the caller's stream -> gather, and copies, one after the other -> over
///
/// Owns:    the batch, the host memory and the slot where small leaves are gathered, until it is
///          over.
/// Threads: thread-safe.
/// Errors:  those of the driver.
/// Blocks:  never.
/// Cost:    two events; the device thread is busy for as long as the copies take.
class Filling : public std::enable_shared_from_this<Filling> {
 public:
  /// `room` is for the batch, by Layout::aligned; it has the leaves of host memory already.
  /// `copies` are those of the batch to the room. `on_over` is called in the device thread.
  [[nodiscard]] static Result<std::shared_ptr<const Filling>> begin(TensorDict batch, Storage room,
                                                                    CopiesToHost copies,
                                                                    std::shared_ptr<cuda::Gpu> gpu,
                                                                    void* stream,
                                                                    std::function<void()> on_over);

  [[nodiscard]] const GpuAnswer& answer() const noexcept { return answer_; }

 private:
  Filling(TensorDict batch, Storage room, CopiesToHost copies, std::shared_ptr<cuda::Gpu> gpu,
          std::function<void()> on_over);
  // In the device thread
  void go_on();
  [[nodiscard]] Result<void> copy_next();
  [[nodiscard]] Result<void> copied();
  void finish(Result<void> result);

  TensorDict batch_;
  Storage room_;
  CopiesToHost copies_;
  std::shared_ptr<cuda::Gpu> gpu_;
  const std::function<void()> on_over_;
  std::size_t copied_count_ = 0;
  GpuAnswer answer_;
};

}  // namespace tendon::v0::detail
