// SPDX-License-Identifier: Apache-2.0
#include "cuda/device_pool.hpp"

#include <utility>

#include "cuda/slot_sizes.hpp"

namespace tendon::v0::detail::cuda {
namespace {

constexpr std::string_view kWhere = "cuda.pool";

}  // namespace

DeviceSlot::DeviceSlot(std::shared_ptr<DevicePool> pool, std::shared_ptr<DeviceSegment> segment,
                       SlotId id, DeviceAddress address, std::uint64_t size_bytes)
    : pool_(std::move(pool)),
      segment_(std::move(segment)),
      id_(id),
      address_(address),
      size_bytes_(size_bytes) {}

DeviceSlot::~DeviceSlot() { pool_->drop_owner(id_); }

DevicePool::DevicePool(std::shared_ptr<PrimaryContext> context, DeviceThread& thread,
                       std::uint64_t cap_bytes)
    : context_(std::move(context)),
      thread_(thread),
      cap_bytes_(cap_bytes),
      holds_(kFirstSegment, cap_bytes),
      table_(kFirstSegment, cap_bytes) {}

DevicePool::~DevicePool() = default;

Result<std::shared_ptr<DeviceSlot>> DevicePool::acquire(std::uint64_t size_bytes,
                                                        Deadline deadline) {
  const std::uint64_t slot_bytes = slot_bytes_for(size_bytes);
  if (size_bytes > cap_bytes_ || segment_bytes_for(slot_bytes) > cap_bytes_) {
    return Error{ErrorCode::message_too_large, kWhere,
                 std::to_string(size_bytes) + " bytes on " + to_string(context_->device()) +
                     " need a segment of " + std::to_string(segment_bytes_for(slot_bytes)) +
                     ", and the pool has at most " + std::to_string(cap_bytes_) +
                     " (ContextOptions::device_cap_bytes)"};
  }
  for (;;) {
    {
      const Lock lock(mutex_);
      if (const auto place = table_.take(slot_bytes)) {
        const auto& segment = segments_.at(place->id.segment);
        holds_.begin(place->id, slot_bytes);
        return std::make_shared<DeviceSlot>(shared_from_this(), segment, place->id,
                                            segment->address() + place->offset_bytes, slot_bytes);
      }
    }
    TENDON_CHECK(grow(slot_bytes, deadline));
  }
}

Result<void> DevicePool::grow(std::uint64_t slot_bytes, Deadline deadline) {
  std::optional<std::uint32_t> number;
  {
    Segments dropped;  // outside the lock
    const Lock lock(mutex_);
    std::vector<std::uint32_t> removed;
    number = table_.reserve(slot_bytes, removed);
    note_gone(removed, dropped);
  }
  if (!number) return full(slot_bytes);
  auto segment = create(segment_bytes_for(slot_bytes), deadline);
  const Lock lock(mutex_);
  if (!segment) {
    table_.cancel(*number);
    return std::move(segment).error();
  }
  segments_[*number] = *std::move(segment);
  table_.add(*number, std::chrono::steady_clock::now());
  return {};
}

// A GPU that others have filled may have room again without our idle segments.
Result<std::shared_ptr<DeviceSegment>> DevicePool::create(std::uint64_t segment_bytes,
                                                          Deadline deadline) {
  const auto make = [context = context_, &thread = thread_, segment_bytes] {
    return DeviceSegment::create(context, thread, segment_bytes);
  };
  auto made = thread_.run(make, deadline);
  if (made || made.error().code != ErrorCode::resource_exhausted) return made;
  if (!let_idle_go(TimePoint::max())) return made;
  return thread_.run(make, deadline);
}

Error DevicePool::full(std::uint64_t slot_bytes) const {
  return Error{ErrorCode::resource_exhausted, kWhere,
               "no slot of " + std::to_string(slot_bytes) + " bytes is free on " +
                   to_string(context_->device()) + ": the pool has its " +
                   std::to_string(cap_bytes_) + " bytes; " + holds_.most_held() +
                   " (ContextOptions::device_cap_bytes)"};
}

void DevicePool::trim(TimePoint now) { (void)let_idle_go(now - kIdle); }

bool DevicePool::let_idle_go(TimePoint before) {
  Segments dropped;  // outside the lock
  const Lock lock(mutex_);
  note_gone(table_.remove_idle(before), dropped);
  return !dropped.empty();
}

void DevicePool::note_gone(const std::vector<std::uint32_t>& numbers, Segments& dropped) {
  for (const std::uint32_t number : numbers) {
    const auto at = segments_.find(number);
    dropped.push_back(std::move(at->second));
    segments_.erase(at);
    gone_.push_back(number);
  }
}

std::optional<DevicePool::TimePoint> DevicePool::next_trim() const {
  const Lock lock(mutex_);
  const auto since = table_.idle_since();
  if (!since) return std::nullopt;
  return *since + kIdle;
}

std::vector<std::uint32_t> DevicePool::take_gone() {
  const Lock lock(mutex_);
  return std::exchange(gone_, {});
}

// In a forked child the ledger does nothing, so the table is left alone too.
void DevicePool::drop_owner(SlotId id) {
  if (holds_.drop_owner(id)) free_slots({id});
}

void DevicePool::take_back(LinkNumber link, SlotId id) {
  if (holds_.take_back(link, id) == HoldLedger::Left::none) free_slots({id});
}

bool DevicePool::take_return(LinkNumber link, SlotId id) {
  const HoldLedger::Left left = holds_.take_return(link, id);
  if (left == HoldLedger::Left::none) free_slots({id});
  return left != HoldLedger::Left::as_was;
}

void DevicePool::end_link(LinkNumber link, Death death) {
  free_slots(holds_.end_link(link, death));
}

void DevicePool::free_slots(const std::vector<SlotId>& ids) {
  if (ids.empty()) return;
  const auto now = std::chrono::steady_clock::now();
  const Lock lock(mutex_);
  for (const SlotId& id : ids) table_.free(id, now);
}

DevicePoolStats DevicePool::stats() const {
  DevicePoolStats stats;
  stats.cap_bytes = cap_bytes_;
  stats.holds = holds_.stats();
  const Lock lock(mutex_);
  stats.resident_bytes = table_.resident_bytes();
  stats.used_bytes = table_.used_bytes();
  stats.segments = segments_.size();
  return stats;
}

}  // namespace tendon::v0::detail::cuda
