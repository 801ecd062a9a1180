// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cuda/device_pools.hpp"
#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {

/// The memory of a Context that belongs to no link: its own pool, and those on GPUs. Peers map
/// whole segments of `passed`, perhaps for writing, so nothing private lies there.
struct ContextMemory {
  std::shared_ptr<SlotPool> host;
  std::shared_ptr<cuda::DevicePools> devices;
  std::shared_ptr<cuda::DevicePools> passed;
};

}  // namespace tendon::v0::detail
