// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "channel/gpu_answer.hpp"
#include "channel/placement.hpp"
#include "channel/staging.hpp"
#include "cuda/device_pools.hpp"
#include "cuda/gpu.hpp"
#include "cuda/stream_name.hpp"
#include "cuda/stream_work.hpp"
#include "pipe/pipe_messages.hpp"

namespace tendon::v0::detail {

/// A copy of a batch to a GPU, made for a receive that does not wait. The device thread makes it on
/// the GPU's own stream, because a copy of unregistered host memory may block until its stream has
/// done its earlier work. It does other work between pieces.
///
///   the GPU is found -> a slot of its pool -> copies, one after the other -> over
///
/// Owns:    the batch, until it is over; afterwards the copy, until it is taken.
/// Threads: begin() and stop() in any, calls after the end too; the rest is the device thread's.
/// Errors:  `cancelled` after stop(); those of the search for the GPU, of the pool and of the
///          driver.
/// Blocks:  never.
/// Cost:    two events; the device thread is busy for as long as the copies take.
///
/// The GPU has made the copy when it is over, so any stream may use it. Memory that the GPU reads
/// or writes is not released earlier, even if the last share of this object is.
class Delivery : public std::enable_shared_from_this<Delivery> {
 public:
  struct Target {
    std::shared_ptr<cuda::Gpu> gpu;              ///< null: the one that `placement` names
    std::shared_ptr<const Placement> placement;  ///< the leaves; null: all
    std::shared_ptr<cuda::DevicePools> pools;
    cuda::StreamName stream;  ///< on which the program uses it, until it drops the last tensor
    /// h2d, unless the batch lies on the GPU, in memory of the peer.
    DeviceCopyKind kind = DeviceCopyKind::h2d;
  };

  /// `on_over` is called in the device thread. Fails if `placement` names the GPU and the process
  /// uses no CUDA.
  [[nodiscard]] static Result<std::shared_ptr<Delivery>> begin(TensorDict batch, Target target,
                                                               std::function<void()> on_over);

  [[nodiscard]] const GpuAnswer& answer() const noexcept { return answer_; }
  [[nodiscard]] DeviceCopyKind kind() const noexcept { return target_.kind; }
  /// Precondition: it is over, without an error.
  [[nodiscard]] TensorDict take_batch() { return std::move(delivered_); }
  /// Stops it because nobody wants it any more: no further copy begins.
  void stop() noexcept { is_stopped_.store(true, std::memory_order_relaxed); }

 private:
  Delivery(TensorDict batch, Target target, std::function<void()> on_over);
  // In the device thread
  void go_on();
  [[nodiscard]] Result<void> step();
  [[nodiscard]] Result<void> find_gpu();
  /// False: a slot is being made.
  [[nodiscard]] Result<bool> make_room();
  [[nodiscard]] Result<void> make_host_room();
  [[nodiscard]] Result<void> copy_piece();
  void finish(Result<void> result);

  TensorDict batch_;
  Target target_;
  const std::function<void()> on_over_;
  std::atomic<bool> is_stopped_{false};
  std::optional<cuda::StreamWork> work_;
  std::vector<GpuCopy> copies_;
  std::size_t copied_count_ = 0;
  TensorDict delivered_;
  GpuAnswer answer_;
};

}  // namespace tendon::v0::detail
