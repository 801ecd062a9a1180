// SPDX-License-Identifier: Apache-2.0
#include <tendon/memory/pool.hpp>

#include "memory/loaned_slot.hpp"

namespace tendon::v0 {

std::string PoolSummary::to_string() const {
  return std::to_string(loaned_count) + " slots in use, " + std::to_string(resident_bytes) +
         " of " + std::to_string(cap_bytes) + " bytes resident in " +
         std::to_string(segment_count) + " segments";
}

Result<Storage> Pool::allocate(std::uint64_t size_bytes) {
  TENDON_TRY(slot, slots_->acquire(size_bytes));
  auto loaned = std::make_shared<detail::LoanedSlot>(slots_, slot);
  return Storage(std::move(loaned), slot.memory.data(), size_bytes, Access::read_write);
}

PoolSummary Pool::summary() const {
  const detail::SlotPoolStats stats = slots_->stats();
  return {stats.cap_bytes, stats.resident_bytes, stats.loaned_count, stats.segment_count};
}

}  // namespace tendon::v0
