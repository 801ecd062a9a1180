// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/memory/device.hpp>
#include <utility>
#include <vector>

#include "cuda/device_pool.hpp"
#include "cuda/gpu.hpp"

namespace tendon::v0::detail::cuda {

/// The pools of slots of one Context, one for each GPU from its first use on. A number names a
/// segment in all of them.
///
/// Owns:    the pools.
/// Threads: thread-safe; a short lock, under which no call of the driver is made.
/// Errors:  none; those of a pool are its own.
/// Blocks:  never.
/// Cost:    a lock; trim() and next_trim() a look at each pool.
class DevicePools {
 public:
  using TimePoint = DevicePool::TimePoint;

  /// Each pool has at most `cap_bytes` of its GPU.
  explicit DevicePools(std::uint64_t cap_bytes) : cap_bytes_(cap_bytes) {}
  DevicePools(const DevicePools&) = delete;
  DevicePools& operator=(const DevicePools&) = delete;

  [[nodiscard]] std::shared_ptr<DevicePool> of(const std::shared_ptr<Gpu>& gpu);

  /// Releases segments that have been idle for DevicePool::kIdle at `now`.
  void trim(TimePoint now);
  /// The time when trim() would release the next one; empty: none is idle.
  [[nodiscard]] std::optional<TimePoint> next_trim() const;
  /// By number of the GPU.
  [[nodiscard]] std::vector<std::pair<Device, DevicePoolStats>> stats() const;

 private:
  [[nodiscard]] std::vector<std::shared_ptr<DevicePool>> all() const;

  const std::uint64_t cap_bytes_;
  mutable Mutex mutex_;
  std::map<int, std::shared_ptr<DevicePool>> pools_ TENDON_GUARDED_BY(mutex_);  // by ordinal
};

}  // namespace tendon::v0::detail::cuda
