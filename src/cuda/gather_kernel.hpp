// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>

#include "cuda/device_thread.hpp"
#include "cuda/gather_table.hpp"
#include "cuda/primary_context.hpp"

namespace tendon::v0::detail::cuda {

/// The kernel that packs small pieces of memory of one GPU (gather.cu), compiled by its driver at
/// the first use. The device thread does that, because it may take some 10 ms, and longer if the
/// driver waits for the GPU's work.
///
/// Owns:    nothing: the driver has it for as long as the primary context.
/// Threads: thread-safe; a lock, under which no call of the driver is made.
/// Errors:  those of the driver, which is asked again only after resource_exhausted; a refusal is
///          in the log; device_lost; timeout; forked.
/// Blocks:  function(), for the device thread, until the deadline. A kernel that is ready later is
///          there for the next call. Not in that thread itself.
/// Cost:    function(): a lock.
class GatherKernel : public std::enable_shared_from_this<GatherKernel> {
 public:
  GatherKernel(std::shared_ptr<PrimaryContext> context, DeviceThread& thread);
  GatherKernel(const GatherKernel&) = delete;
  GatherKernel& operator=(const GatherKernel&) = delete;

  [[nodiscard]] Result<FunctionHandle> function(Deadline deadline);

 private:
  using Loaded = Result<FunctionHandle>;
  [[nodiscard]] Loaded load() const;
  void loaded(Loaded result);

  const std::shared_ptr<PrimaryContext> context_;
  DeviceThread& thread_;
  Mutex mutex_;
  CondVar changed_;
  bool is_loading_ TENDON_GUARDED_BY(mutex_) = false;
  std::optional<Loaded> loaded_ TENDON_GUARDED_BY(mutex_);
};

/// Enqueues one launch, for at most kMaxGatherEntries. The context is current. If no entry has a
/// byte, nothing is enqueued.
[[nodiscard]] Status launch_gather(const DriverTable& table, FunctionHandle kernel,
                                   StreamHandle stream, std::span<const GatherEntry> entries);

}  // namespace tendon::v0::detail::cuda
