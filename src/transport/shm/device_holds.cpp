// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/device_holds.hpp"

#include <algorithm>

namespace tendon::v0::detail {

std::unique_ptr<DeviceHold> DeviceHolds::give(SlotPool::Ledger& ledger,
                                              const cuda::DeviceSlot& slot) {
  using cuda::DevicePool;
  const Lock lock(mutex_);
  auto part = std::ranges::find(parts_, &slot.pool(), [](const Part& p) { return p.pool.get(); });
  if (part == parts_.end()) {
    auto pool = slot.pool().shared_from_this();
    const auto link =
        pool->add_link(peer_name_, ledger.reserve_places(DevicePool::kMaxHoldsPerLink));
    part = parts_.insert(parts_.end(), Part{std::move(pool), link});
  }
  if (part->pool->give(part->link, slot) != DevicePool::Window::open) return nullptr;
  return std::make_unique<DeviceHold>(part->pool, part->link, slot.id());
}

bool DeviceHolds::take_return(SlotId id) {
  const Lock lock(mutex_);
  const auto part =
      std::ranges::find_if(parts_, [id](const Part& p) { return p.pool->numbers(id.segment); });
  if (part == parts_.end()) return false;
  part->pool->take_return(part->link, id);
  return true;
}

void DeviceHolds::end(Death death) {
  const Lock lock(mutex_);
  for (const Part& part : parts_) part.pool->end_link(part.link, death);
}

void DeviceHolds::retire() {
  const Lock lock(mutex_);
  for (const Part& part : parts_) part.pool->retire_link(part.link);
}

std::uint64_t DeviceHolds::count() const {
  std::uint64_t count = 0;
  const Lock lock(mutex_);
  for (const Part& part : parts_) count += part.pool->holds_of(part.link);
  return count;
}

}  // namespace tendon::v0::detail
