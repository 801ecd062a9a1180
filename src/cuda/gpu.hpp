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

/// A GPU that this process uses, with what all its work there shares.
///
/// Owns:    a share of the primary context; events that nobody uses, for the next one; what is kept
///          for good.
/// Threads: thread-safe; a short lock, under which no call of the driver is made.
/// Errors:  those of the driver; device_lost; forked.
/// Blocks:  never. The device thread destroys the events, after the last share is dropped.
/// Cost:    take_event(): a lock; about 1 us where none is free.
class Gpu {
 public:
  Gpu(std::shared_ptr<PrimaryContext> context, DeviceThread& thread);
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu();

  [[nodiscard]] const std::shared_ptr<PrimaryContext>& context() const noexcept { return context_; }
  [[nodiscard]] DeviceThread& thread() const noexcept { return thread_; }
  [[nodiscard]] GatherKernel& gather_kernel() const noexcept { return *gather_kernel_; }

  /// For copies that the device thread makes itself: it waits for no other stream. In the device
  /// thread alone.
  [[nodiscard]] Result<StreamHandle> own_stream();
  /// An event without times, for one use.
  [[nodiscard]] Result<EventHandle> take_event();
  /// The use is over: the GPU has reached the event, or nobody asks whether it has.
  void put_event(EventHandle event);
  /// Memory of which nothing tells when the GPU is done with it stays as long as the GPU is used.
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
