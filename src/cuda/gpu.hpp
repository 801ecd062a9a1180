// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "cuda/device_thread.hpp"
#include "cuda/gather_kernel.hpp"
#include "cuda/primary_context.hpp"

namespace tendon::v0::detail::cuda {

/// A GPU that this process uses, with the resources that all its work there shares.
///
/// Owns:    a share of the primary context; unused events, for the next use; memory that is kept
///          for good.
/// Threads: thread-safe; a short lock, under which no call of the driver is made.
/// Errors:  those of the driver; device_lost; forked.
/// Blocks:  never. The device thread destroys the events, after the last share is dropped.
/// Cost:    take_event(): a lock; about 1 us if none is free.
class Gpu {
 public:
  Gpu(std::shared_ptr<PrimaryContext> context, DeviceThread& thread);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  [[nodiscard]] const std::shared_ptr<PrimaryContext>& context() const noexcept { return context_; }
  [[nodiscard]] DeviceThread& thread() const noexcept { return thread_; }
  [[nodiscard]] GatherKernel& gather_kernel() const noexcept { return *gather_kernel_; }

  /// A stream for copies that the device thread makes itself: it waits for no other stream. Only in
  /// the device thread.
  [[nodiscard]] Result<StreamHandle> own_stream();
  /// An event without times, for one use.
  [[nodiscard]] Result<EventHandle> take_event();
  /// Returns an event after its use: the GPU has reached it, or nobody asks whether it has.
  void put_event(EventHandle event);
  /// Keeps memory as long as the GPU is used, because nothing tells when the GPU is done with it.
  void keep_for_good(std::vector<std::shared_ptr<const void>> owners);

 private:
  const std::shared_ptr<PrimaryContext> context_;
  DeviceThread& thread_;
  const std::shared_ptr<GatherKernel> gather_kernel_;
  StreamHandle own_stream_ = nullptr;
  Mutex mutex_;
  std::vector<EventHandle> free_events_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const void>> kept_for_good_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail::cuda
