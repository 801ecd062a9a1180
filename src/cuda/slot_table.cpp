// SPDX-License-Identifier: Apache-2.0
#include "cuda/slot_table.hpp"

#include <algorithm>
#include <numeric>

namespace tendon::v0::detail::cuda {

// In the order of their numbers, so that later segments become idle.
std::optional<SlotTable::Place> SlotTable::take(std::uint64_t slot_bytes) {
  const auto at = std::ranges::find_if(segments_, [slot_bytes](const auto& entry) {
    return entry.second.slot_bytes == slot_bytes && !entry.second.free.empty();
  });
  if (at == segments_.end()) return std::nullopt;
  auto& [number, segment] = *at;
  const std::uint32_t slot = segment.free.back();
  segment.free.pop_back();
  segment.idle_since.reset();
  used_bytes_ += slot_bytes;
  return Place{{number, slot, ++generation_}, slot * slot_bytes};
}

void SlotTable::free(SlotId id, TimePoint now) {
  const auto at = segments_.find(id.segment);
  if (at == segments_.end()) return;
  Segment& segment = at->second;
  segment.free.push_back(id.slot);
  used_bytes_ -= segment.slot_bytes;
  if (segment.free.size() == segment.slot_count) segment.idle_since = now;
}

std::optional<std::uint32_t> SlotTable::reserve(std::uint64_t slot_bytes,
                                                std::vector<std::uint32_t>& removed) {
  const std::uint64_t wanted_bytes = segment_bytes(slot_bytes);
  if (wanted_bytes > cap_bytes_ || next_number_ == end_number_) return std::nullopt;
  const std::uint64_t idle_bytes = std::accumulate(
      segments_.begin(), segments_.end(), std::uint64_t{0},
      [this](std::uint64_t sum, const auto& each) {
        return sum + (each.second.idle_since ? segment_bytes(each.second.slot_bytes) : 0);
      });
  // Nothing is removed if that would not be enough.
  if (resident_bytes_ - idle_bytes > cap_bytes_ - wanted_bytes) return std::nullopt;
  while (resident_bytes_ > cap_bytes_ - wanted_bytes) {
    const auto idle = longest_idle();
    removed.push_back(idle->first);
    remove(idle);
  }
  resident_bytes_ += wanted_bytes;
  const std::uint32_t number = next_number_++;
  segments_[number].slot_bytes = slot_bytes;
  return number;
}

void SlotTable::add(std::uint32_t number, TimePoint now) {
  Segment& segment = segments_.at(number);
  segment.slot_count = segment_bytes(segment.slot_bytes) / segment.slot_bytes;
  segment.free.resize(segment.slot_count);
  std::iota(segment.free.rbegin(), segment.free.rend(), std::uint32_t{0});
  segment.idle_since = now;
}

void SlotTable::cancel(std::uint32_t number) { remove(segments_.find(number)); }

std::vector<std::uint32_t> SlotTable::remove_idle(TimePoint before) {
  std::vector<std::uint32_t> removed;
  for (auto idle = longest_idle(); idle != segments_.end() && *idle->second.idle_since <= before;
       idle = longest_idle()) {
    removed.push_back(idle->first);
    remove(idle);
  }
  return removed;
}

std::optional<SlotTable::TimePoint> SlotTable::idle_since() const {
  std::optional<TimePoint> first;
  for (const auto& [number, segment] : segments_)
    if (segment.idle_since && (!first || *segment.idle_since < *first)) first = segment.idle_since;
  return first;
}

SlotTable::Segments::iterator SlotTable::longest_idle() {
  auto found = segments_.end();
  for (auto each = segments_.begin(); each != segments_.end(); ++each) {
    if (!each->second.idle_since) continue;
    if (found == segments_.end() || *each->second.idle_since < *found->second.idle_since)
      found = each;
  }
  return found;
}

void SlotTable::remove(Segments::iterator segment) {
  resident_bytes_ -= segment_bytes(segment->second.slot_bytes);
  segments_.erase(segment);
}

}  // namespace tendon::v0::detail::cuda
