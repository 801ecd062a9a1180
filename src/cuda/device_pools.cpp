// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_pools.hpp"

namespace tendon::v0::detail::cuda {

std::shared_ptr<DevicePool> DevicePools::of(const std::shared_ptr<Gpu>& gpu) {
  const Lock lock(mutex_);
  auto& pool = pools_[gpu->context()->ordinal()];
  if (pool == nullptr) {
    const auto ordinal = static_cast<std::uint32_t>(gpu->context()->ordinal());
    pool =
        std::make_shared<DevicePool>(gpu->context(), gpu->thread(), cap_bytes_,
                                     DevicePool::kFirstSegment + ordinal * SlotTable::kMostNumbers);
  }
  return pool;
}

std::vector<std::shared_ptr<DevicePool>> DevicePools::all() const {
  std::vector<std::shared_ptr<DevicePool>> pools;
  const Lock lock(mutex_);
  pools.reserve(pools_.size());
  for (const auto& [ordinal, pool] : pools_) pools.push_back(pool);
  return pools;
}

void DevicePools::trim(TimePoint now) {
  for (const auto& pool : all()) pool->trim(now);
}

std::optional<DevicePools::TimePoint> DevicePools::next_trim() const {
  std::optional<TimePoint> next;
  for (const auto& pool : all()) {
    const auto due = pool->next_trim();
    if (due && (!next || *due < *next)) next = due;
  }
  return next;
}

std::vector<std::pair<Device, DevicePoolStats>> DevicePools::stats() const {
  std::vector<std::pair<Device, DevicePoolStats>> stats;
  for (const auto& pool : all()) stats.emplace_back(pool->context().device(), pool->stats());
  return stats;
}

}  // namespace tendon::v0::detail::cuda
