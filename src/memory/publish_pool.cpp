// SPDX-License-Identifier: Apache-2.0
#include "memory/publish_pool.hpp"

#include <algorithm>
#include <utility>

#include "memory/recycler.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "publish_pool.acquire";

SlotId outside(SlotId id) {
  return {id.segment + PublishPool::kFirstSegment, id.slot, id.generation};
}
SlotId inside(SlotId id) {
  return {id.segment - PublishPool::kFirstSegment, id.slot, id.generation};
}

}  // namespace

PublishedSlot::~PublishedSlot() { pool_->drop_owner(slot_.id); }

PublishPool::PublishPool(std::uint64_t cap_bytes)
    : slots_("publish pool of this context", cap_bytes, Writers::maker_only) {}

Result<std::shared_ptr<PublishedSlot>> PublishPool::acquire(std::uint64_t size_bytes) {
  if (size_bytes > cap_bytes()) {
    return Error{ErrorCode::message_too_large, kWhere,
                 "a sample of " + std::to_string(size_bytes) + " bytes, at most " +
                     std::to_string(cap_bytes()) + " fit (ContextOptions::publish_bytes)"};
  }
  auto slot = slots_.acquire(size_bytes);
  if (!slot && slot.error().code == ErrorCode::resource_exhausted) {
    Error full = std::move(slot).error();
    full.detail += "; " + most_held() + " (ContextOptions::publish_bytes)";
    return full;
  }
  if (!slot) return std::move(slot).error();
  slot->id = outside(slot->id);
  const std::uint32_t segment = inside(slot->id).segment;
  const Lock lock(mutex_);
  // Another thread may have taken the first slot of an earlier segment and not come here yet.
  if (segment >= segments_.size()) segments_.resize(segment + 1);
  Segment& at = segments_[segment];
  at.slot_bytes = slot->memory.size();
  if (slot->id.slot >= at.uses.size()) at.uses.resize(slot->id.slot + 1);
  Use& use = at.uses[slot->id.slot];
  use.generation = slot->id.generation;
  use.owned = true;
  return make_recycled<PublishedSlot>(shared_from_this(), *slot);
}

SegmentInfo PublishPool::segment_of(const PublishedSlot& slot) {
  SegmentInfo info = slots_.ledger().segments_from(inside(slot.id()).segment).front();
  info.id = slot.id().segment;
  return info;
}

PublishPool::Use* PublishPool::find(SlotId id) {
  id = inside(id);
  if (id.segment >= segments_.size() || id.slot >= segments_[id.segment].uses.size())
    return nullptr;
  Use& use = segments_[id.segment].uses[id.slot];
  return use.generation == id.generation ? &use : nullptr;
}

std::uint64_t PublishPool::bytes_of(SlotId id) const {
  return segments_[inside(id).segment].slot_bytes;
}

// In the same step under mutex_ as the end of the last hold: nobody can get one in between.
void PublishPool::free_if_unheld(SlotId id, const Use& use) {
  if (!use.owned && use.shares.empty()) slots_.release(inside(id));
}

void PublishPool::drop_owner(SlotId id) {
  if (process_ != process_number()) return;  // a thread of the parent may have the lock
  const Lock lock(mutex_);
  Use* const use = find(id);
  if (use == nullptr || !std::exchange(use->owned, false)) return;
  free_if_unheld(id, *use);
}

// Links

PublishPool::LinkNumber PublishPool::add_link(std::string name, std::uint32_t places, Reads reads) {
  const Lock lock(mutex_);
  readers_.emplace(++last_link_,
                   Reader{std::move(name), std::min(places, kMaxHoldsPerLink), reads});
  return last_link_;
}

PublishPool::Window PublishPool::give(LinkNumber link, const PublishedSlot& slot,
                                      std::uint64_t share_bytes) {
  const Lock lock(mutex_);
  const auto found = readers_.find(link);
  if (found == readers_.end()) return Window::closed;
  Reader& reader = found->second;
  // The caller has a share of the owner's hold, so it is in the ledger.
  Use* const use = find(slot.id());
  if (use == nullptr || reader.standing != Standing::live) return Window::closed;
  if (reader.holds >= reader.places) return Window::beyond_share;
  const auto share = std::ranges::find(use->shares, link, &Share::link);
  if (share != use->shares.end()) {
    ++share->holds;
  } else {
    const std::uint64_t bytes = bytes_of(slot.id());
    // However large: one to read while the next is on its way.
    const std::uint64_t most = std::max(std::min(share_bytes, cap_bytes() / 2), 2 * bytes);
    if (reader.bytes + bytes > most) return Window::beyond_share;
    if (use->shares.empty()) {
      if (held_bytes_ + (1 + kOwnersSlots) * bytes > cap_bytes()) return Window::beyond_share;
      held_bytes_ += bytes;
    }
    reader.bytes += bytes;
    use->shares.push_back({link, 1});
  }
  ++reader.holds;
  if (reader.reads == Reads::over_socket && use->sends++ == 0)
    sending_bytes_ += bytes_of(slot.id());
  return Window::open;
}

bool PublishPool::end_hold(LinkNumber link, SlotId id) {
  const auto reader = readers_.find(link);
  Use* const use = find(id);
  if (use == nullptr || reader == readers_.end()) return false;
  const auto share = std::ranges::find(use->shares, link, &Share::link);
  if (share == use->shares.end()) return false;
  --reader->second.holds;
  if (reader->second.reads == Reads::over_socket) end_sends(*use, 1, bytes_of(id));
  if (--share->holds == 0) {
    reader->second.bytes -= bytes_of(id);
    *share = use->shares.back();
    use->shares.pop_back();
    if (use->shares.empty()) held_bytes_ -= bytes_of(id);
    free_if_unheld(id, *use);
  }
  if (reader->second.standing != Standing::live && reader->second.holds == 0)
    readers_.erase(reader);
  return true;
}

void PublishPool::take_back(LinkNumber link, SlotId id) {
  if (process_ != process_number()) return;  // as above
  const Lock lock(mutex_);
  (void)end_hold(link, id);  // it is there, unless proof of the peer's death came meanwhile
}

bool PublishPool::take_return(LinkNumber link, SlotId id) {
  const Lock lock(mutex_);
  if (end_hold(link, id)) return true;
  ++ignored_returns_;
  return false;
}

void PublishPool::end_link(LinkNumber link, Death death) {
  const Lock lock(mutex_);
  const auto reader = readers_.find(link);
  if (reader == readers_.end()) return;
  if (death == Death::not_proved && reader->second.holds != 0) {
    reader->second.standing = Standing::quarantined;
    return;
  }
  for (std::uint32_t s = 0; s < segments_.size(); ++s) {
    for (std::uint32_t i = 0; i < segments_[s].uses.size(); ++i) {
      Use& use = segments_[s].uses[i];
      const auto share = std::ranges::find(use.shares, link, &Share::link);
      if (share == use.shares.end()) continue;
      if (reader->second.reads == Reads::over_socket)
        end_sends(use, share->holds, segments_[s].slot_bytes);
      use.shares.erase(share);
      if (use.shares.empty()) held_bytes_ -= segments_[s].slot_bytes;
      free_if_unheld({s + kFirstSegment, i, use.generation}, use);
    }
  }
  readers_.erase(reader);
}

void PublishPool::retire_link(LinkNumber link) {
  if (process_ != process_number()) return;  // as above
  const Lock lock(mutex_);
  const auto reader = readers_.find(link);
  if (reader == readers_.end()) return;
  if (reader->second.holds == 0)
    readers_.erase(reader);
  else if (reader->second.standing == Standing::live)
    reader->second.standing = Standing::retired;
}

std::uint64_t PublishPool::holds_of(LinkNumber link) const {
  const Lock lock(mutex_);
  const auto reader = readers_.find(link);
  return reader == readers_.end() ? 0 : reader->second.holds;
}

void PublishPool::end_sends(Use& use, std::uint32_t count, std::uint64_t slot_bytes) {
  use.sends -= count;
  if (use.sends == 0) sending_bytes_ -= slot_bytes;
}

void PublishPool::count_copy(std::uint64_t size_bytes) {
  const Lock lock(mutex_);
  sending_bytes_ += size_bytes;
}

void PublishPool::uncount_copy(std::uint64_t size_bytes) {
  if (process_ != process_number()) return;  // as above
  const Lock lock(mutex_);
  sending_bytes_ -= size_bytes;
}

PublishPoolStats PublishPool::stats() const {
  PublishPoolStats stats;
  stats.slots = slots_.stats();
  const Lock lock(mutex_);
  stats.ignored_returns = ignored_returns_;
  for (const auto& [link, reader] : readers_) {
    stats.holds += reader.holds;
    if (reader.standing == Standing::quarantined) stats.quarantined += reader.holds;
  }
  return stats;
}

std::string PublishPool::most_held() const {
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
