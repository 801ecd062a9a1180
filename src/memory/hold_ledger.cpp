// SPDX-License-Identifier: Apache-2.0
#include "memory/hold_ledger.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {
namespace {

constexpr std::uint32_t kAll = ~std::uint32_t{0};

}  // namespace

SlotUse* HoldLedger::find(SlotId id) {
  const auto segment = segments_.find(id.segment);
  if (segment == segments_.end() || id.slot >= segment->second.uses.size()) return nullptr;
  SlotUse& use = segment->second.uses[id.slot];
  return use.generation() == id.generation ? &use : nullptr;
}

std::uint64_t HoldLedger::bytes_of(SlotId id) const { return segments_.at(id.segment).slot_bytes; }

// The owner

void HoldLedger::begin(SlotId id, std::uint64_t slot_bytes) {
  const Lock lock(mutex_);
  Segment& at = segments_[id.segment];
  at.slot_bytes = slot_bytes;
  if (id.slot >= at.uses.size()) at.uses.resize(id.slot + 1);
  at.uses[id.slot].begin(id.generation);
}

bool HoldLedger::drop_owner(SlotId id) {
  if (process_ != process_number()) return false;  // a thread of the parent may have the lock
  const Lock lock(mutex_);
  SlotUse* const use = find(id);
  return use != nullptr && use->drop_owner() && use->is_free();
}

void HoldLedger::forget(std::uint32_t segment) {
  const Lock lock(mutex_);
  segments_.erase(segment);
}

// Links

HoldLedger::LinkNumber HoldLedger::add_link(std::string name, std::uint32_t places, Reads reads) {
  const Lock lock(mutex_);
  readers_.emplace(++last_link_, Reader{std::move(name), places, reads});
  return last_link_;
}

HoldLedger::Window HoldLedger::give(LinkNumber link, SlotId id, std::uint64_t share_bytes) {
  const Lock lock(mutex_);
  const auto found = readers_.find(link);
  if (found == readers_.end()) return Window::closed;
  Reader& reader = found->second;
  SlotUse* const use = find(id);
  if (use == nullptr || reader.standing != Standing::live) return Window::closed;
  if (reader.holds >= reader.places) return Window::beyond_share;
  if (std::uint32_t* const holds = use->holds_of(link); holds != nullptr) {
    ++*holds;
  } else {
    const std::uint64_t bytes = bytes_of(id);
    // Whatever the size: one to read while the next is on its way.
    const std::uint64_t most = std::max(std::min(share_bytes, cap_bytes_ / 2), 2 * bytes);
    if (reader.bytes + bytes > most) return Window::beyond_share;
    if (!use->is_with_links()) {
      if (held_bytes_ + (1 + kOwnersSlots) * bytes > cap_bytes_) return Window::beyond_share;
      held_bytes_ += bytes;
    }
    reader.bytes += bytes;
    use->add(link);
  }
  ++reader.holds;
  if (reader.reads == Reads::over_socket && use->begin_send()) sending_bytes_ += bytes_of(id);
  return Window::open;
}

HoldLedger::Left HoldLedger::end_hold(LinkNumber link, SlotId id) {
  const auto found = readers_.find(link);
  SlotUse* const use = find(id);
  if (use == nullptr || found == readers_.end()) return Left::as_was;
  const SlotUse::Ended ended = use->end(link, 1);
  if (ended.count == 0) return Left::as_was;
  Reader& reader = found->second;
  --reader.holds;
  if (reader.reads == Reads::over_socket && use->end_sends(1)) sending_bytes_ -= bytes_of(id);
  Left left = Left::holds;
  if (ended.left == 0) {
    reader.bytes -= bytes_of(id);
    if (!use->is_with_links()) held_bytes_ -= bytes_of(id);
    if (use->is_free()) left = Left::none;
  }
  if (reader.standing != Standing::live && reader.holds == 0) readers_.erase(found);
  return left;
}

HoldLedger::Left HoldLedger::take_back(LinkNumber link, SlotId id) {
  if (process_ != process_number()) return Left::as_was;  // as above
  const Lock lock(mutex_);
  return end_hold(link, id);  // it is there, unless proof of the peer's death arrived meanwhile
}

HoldLedger::Left HoldLedger::take_return(LinkNumber link, SlotId id) {
  const Lock lock(mutex_);
  const Left left = end_hold(link, id);
  if (left == Left::as_was) ++ignored_returns_;
  return left;
}

std::vector<SlotId> HoldLedger::end_link(LinkNumber link, Death death) {
  std::vector<SlotId> freed;
  const Lock lock(mutex_);
  const auto reader = readers_.find(link);
  if (reader == readers_.end()) return freed;
  if (death == Death::not_proved && reader->second.holds != 0) {
    reader->second.standing = Standing::quarantined;
    return freed;
  }
  freed.reserve(reader->second.holds);
  for (auto& [number, segment] : segments_) {
    for (std::uint32_t i = 0; i < segment.uses.size(); ++i) {
      SlotUse& use = segment.uses[i];
      const std::uint32_t ended = use.end(link, kAll).count;
      if (ended == 0) continue;
      if (reader->second.reads == Reads::over_socket && use.end_sends(ended))
        sending_bytes_ -= segment.slot_bytes;
      if (!use.is_with_links()) held_bytes_ -= segment.slot_bytes;
      if (use.is_free()) freed.push_back({number, i, use.generation()});
    }
  }
  readers_.erase(reader);
  return freed;
}

void HoldLedger::retire_link(LinkNumber link) {
  if (process_ != process_number()) return;  // as above
  const Lock lock(mutex_);
  const auto reader = readers_.find(link);
  if (reader == readers_.end()) return;
  if (reader->second.holds == 0)
    readers_.erase(reader);
  else if (reader->second.standing == Standing::live)
    reader->second.standing = Standing::retired;
}

std::uint64_t HoldLedger::holds_of(LinkNumber link) const {
  const Lock lock(mutex_);
  const auto reader = readers_.find(link);
  return reader == readers_.end() ? 0 : reader->second.holds;
}

HoldStats HoldLedger::stats() const {
  HoldStats stats;
  const Lock lock(mutex_);
  stats.ignored_returns = ignored_returns_;
  for (const auto& [link, reader] : readers_) {
    stats.holds += reader.holds;
    if (reader.standing == Standing::quarantined) stats.quarantined += reader.holds;
  }
  return stats;
}

std::vector<PoolHolder> HoldLedger::holders() const {
  std::vector<PoolHolder> holders;
  const Lock lock(mutex_);
  for (const auto& [link, reader] : readers_)
    if (reader.holds != 0) holders.push_back({reader.name, reader.holds, reader.bytes});
  return holders;
}

std::string HoldLedger::most_held() const {
  const Lock lock(mutex_);
  const Reader* most = nullptr;
  for (const auto& [link, reader] : readers_)
    if (most == nullptr || reader.bytes > most->bytes) most = &reader;
  if (most == nullptr || most->holds == 0) return "no reader holds any of them";
  return "most are held by " + most->name + ": " + std::to_string(most->holds) + " holds of " +
         std::to_string(most->bytes) + " bytes" +
         (most->standing == Standing::quarantined ? ", quarantined" : "");
}

}  // namespace tendon::v0::detail
