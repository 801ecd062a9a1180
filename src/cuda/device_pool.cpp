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
                       std::uint64_t cap_bytes, std::uint32_t first_segment)
    : context_(std::move(context)),
      thread_(thread),
      cap_bytes_(cap_bytes),
      first_segment_(first_segment),
      holds_(cap_bytes),
      table_(first_segment, cap_bytes) {}

DevicePool::~DevicePool() = default;

Result<std::shared_ptr<DeviceSlot>> DevicePool::acquire(std::uint64_t size_bytes,
                                                        Deadline deadline) {
  TENDON_CHECK(context_->check_usable(kWhere));
  const std::uint64_t slot_bytes = slot_bytes_for(size_bytes);
  if (segment_bytes_for(slot_bytes, cap_bytes_) > cap_bytes_) {
    return Error{ErrorCode::message_too_large, kWhere,
                 std::to_string(size_bytes) + " bytes on " + to_string(context_->device()) +
                     " need a segment of " +
                     std::to_string(segment_bytes_for(slot_bytes, cap_bytes_)) +
                     ", and the pool has at most " + std::to_string(cap_bytes_) +
                     " (ContextOptions::device_cap_bytes)"};
  }
  const Lock lock(mutex_);
  for (;;) {
    if (const auto place = table_.take(slot_bytes)) {
      const auto& segment = segments_.at(place->id.segment);
      holds_.begin(place->id, slot_bytes);
      return std::make_shared<DeviceSlot>(shared_from_this(), segment, place->id,
                                          segment->address() + place->offset_bytes, slot_bytes);
    }
    std::shared_ptr<Making> making;
    if (const auto at = making_.find(slot_bytes); at != making_.end()) making = at->second;
    // It failed, and the caller that began it had not waited.
    if (making != nullptr && making->is_over) return failed(slot_bytes, *making);
    if (making == nullptr) {
      TENDON_TRY(begun, grow(slot_bytes));
      making = std::move(begun);
    }
    while (!making->is_over) {
      if (changed_.wait_until(mutex_, deadline) || making->is_over) continue;
      return Error{ErrorCode::timeout, kWhere,
                   "the device thread had not made a segment on " + to_string(context_->device()) +
                       " before the deadline"};
    }
    if (making->error) return failed(slot_bytes, *making);
  }
}

// The next call tries again.
Error DevicePool::failed(std::uint64_t slot_bytes, const Making& making) {
  Error why = *making.error;
  const auto at = making_.find(slot_bytes);
  if (at != making_.end() && at->second.get() == &making) making_.erase(at);
  return why;
}

Result<std::shared_ptr<DevicePool::Making>> DevicePool::grow(std::uint64_t slot_bytes) {
  std::vector<std::uint32_t> removed;
  const auto number = table_.reserve(slot_bytes, removed);
  release(removed);
  if (!number) return full(slot_bytes);
  if (auto posted = make(slot_bytes, Try::first); !posted) {
    table_.cancel(*number);
    return std::move(posted).error();
  }
  return making_[slot_bytes] = std::make_shared<Making>(Making{*number});
}

Result<void> DevicePool::make(std::uint64_t slot_bytes, Try which) {
  return thread_.post([weak = weak_from_this(), context = context_, &thread = thread_, slot_bytes,
                       size_bytes = segment_bytes_for(slot_bytes, cap_bytes_), which] {
    auto segment = DeviceSegment::create(context, thread, size_bytes);
    if (const auto pool = weak.lock()) pool->made(slot_bytes, std::move(segment), which);
  });
}

void DevicePool::made(std::uint64_t slot_bytes, Result<std::shared_ptr<DeviceSegment>> segment,
                      Try which) {
  const Lock lock(mutex_);
  // A GPU that others have filled may have room again without our idle segments.
  if (!segment && segment.error().code == ErrorCode::resource_exhausted && which == Try::first &&
      release_idle(TimePoint::max()) && make(slot_bytes, Try::second))
    return;
  const std::shared_ptr<Making> making = making_.at(slot_bytes);
  if (segment) {
    making_.erase(slot_bytes);
    segments_[making->number] = *std::move(segment);
    table_.add(making->number, std::chrono::steady_clock::now());
  } else {
    table_.cancel(making->number);
    making->error = std::move(segment).error();
  }
  making->is_over = true;
  changed_.notify_all();
}

Error DevicePool::full(std::uint64_t slot_bytes) const {
  return Error{ErrorCode::resource_exhausted, kWhere,
               "no slot of " + std::to_string(slot_bytes) + " bytes is free on " +
                   to_string(context_->device()) + ": the pool has " +
                   std::to_string(table_.resident_bytes()) + " of at most " +
                   std::to_string(cap_bytes_) + " bytes, " + std::to_string(table_.used_bytes()) +
                   " of them in use by loans, batches and peers; " + holds_.most_held() +
                   " (ContextOptions::device_cap_bytes)"};
}

void DevicePool::trim(TimePoint now) {
  const Lock lock(mutex_);
  (void)release_idle(now - kIdle);
}

bool DevicePool::release_idle(TimePoint before) {
  const std::vector<std::uint32_t> idle = table_.remove_idle(before);
  release(idle);
  return !idle.empty();
}

void DevicePool::release(const std::vector<std::uint32_t>& numbers) {
  for (const std::uint32_t number : numbers) {
    segments_.erase(number);
    holds_.forget(number);
  }
}

std::optional<DevicePool::TimePoint> DevicePool::next_trim() const {
  const Lock lock(mutex_);
  const auto since = table_.idle_since();
  if (!since) return std::nullopt;
  return *since + kIdle;
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
  stats.held_by = holds_.most_held();
  const Lock lock(mutex_);
  stats.resident_bytes = table_.resident_bytes();
  stats.used_bytes = table_.used_bytes();
  stats.segments = segments_.size();
  return stats;
}

}  // namespace tendon::v0::detail::cuda
