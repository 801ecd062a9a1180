// SPDX-License-Identifier: Apache-2.0
#include "memory/slot_pool.hpp"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "memory/claim.hpp"

namespace tendon::v0::detail {
namespace {

// The first segments of all size classes have fewer together: 64 slots up to 4 MiB, then 32, 16,
// and 8 for each further power of two.
constexpr std::uint32_t kSlotsOfEveryClass = 1024;

// Only its rounding makes a slot larger than the cap; the pages of that stay untouched.
std::uint64_t full_bytes(std::uint64_t slot_bytes, std::uint64_t cap_bytes) {
  return std::min(slot_bytes, cap_bytes);
}

}  // namespace

SlotPool::SlotPool(std::string owner, std::uint64_t cap_bytes, Writers writers)
    : owner_(std::move(owner)),
      cap_bytes_(std::clamp(cap_bytes, kSmallestSlotBytes, kLargestCapBytes)),
      writers_(writers) {
  // Never reallocated: data pointers and ledgers keep their addresses, and acquire() allocates
  // nothing.
  segments_.reserve(kMaxSegments);
  stats_.cap_bytes = cap_bytes_;
}

std::uint64_t SlotPool::slot_bytes_for(std::uint64_t size_bytes) noexcept {
  // 2^63 is the largest power of two; no pool is that large.
  return std::bit_ceil(std::clamp(size_bytes, kSmallestSlotBytes, std::uint64_t{1} << 63));
}

std::uint32_t SlotPool::guaranteed_count(std::uint64_t slot_bytes,
                                         std::uint64_t cap_bytes) noexcept {
  constexpr std::uint64_t kUsualSegmentBytes = 256ull << 20;
  slot_bytes = std::max(slot_bytes, kSmallestSlotBytes);  // a peer may have announced anything
  const std::uint64_t usual = std::clamp<std::uint64_t>(kUsualSegmentBytes / slot_bytes, 8, 64);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(cap_bytes / slot_bytes, 1, usual));
}

SlotPool::SizeClass& SlotPool::class_of(std::uint64_t slot_bytes) noexcept {
  return classes_[static_cast<std::size_t>(std::countr_zero(slot_bytes))];
}

Result<Slot> SlotPool::acquire(std::uint64_t size_bytes) {
  if (process_ != process_number()) {
    return Error{
        ErrorCode::forked, "pool.acquire",
        owner_ + ": it belongs to the process before fork; create a Context of its own here"};
  }
  const Lock lock(mutex_);
  return acquire_locked(size_bytes);
}

Result<Slot> SlotPool::acquire_locked(std::uint64_t size_bytes) {
  // Checked before rounding up, which would overflow for sizes near 2^64.
  if (size_bytes > cap_bytes_) {
    return Error{ErrorCode::message_too_large, "pool.acquire",
                 owner_ + ": a message of " + std::to_string(size_bytes) + " bytes, at most " +
                     std::to_string(cap_bytes_) + " fit (ContextOptions::link_cap_bytes)"};
  }
  const std::uint64_t slot_bytes = slot_bytes_for(size_bytes);
  auto ready = ready_top(slot_bytes);
  if (!ready && ready.error().code == ErrorCode::resource_exhausted && cut_anew(slot_bytes))
    ready = ready_top(slot_bytes);
  if (ready) return take_top(class_of(slot_bytes), *ready);
  if (ready.error().code != ErrorCode::resource_exhausted ||
      (writers_ != Writers::maker_only && !keeps_pages_))
    return std::move(ready).error();
  // A free slot that is larger than needed is memory that exists.
  if (SizeClass* const larger = larger_with_pages(slot_bytes))
    return take_top(*larger, Slot::Pages::touched);
  return std::move(ready).error();
}

SlotPool::SizeClass* SlotPool::larger_with_pages(std::uint64_t slot_bytes) noexcept {
  for (std::uint64_t larger = 2 * slot_bytes; larger != 0 && larger / 2 <= cap_bytes_;
       larger *= 2) {
    SizeClass& size_class = class_of(larger);
    const auto& free = size_class.free;
    if (!free.empty() && segments_[free.back().segment].ledger[free.back().slot].touched)
      return &size_class;
  }
  return nullptr;
}

// Makes the top slot of its class usable.
Result<Slot::Pages> SlotPool::ready_top(std::uint64_t slot_bytes) {
  SizeClass& size_class = class_of(slot_bytes);
  if (size_class.free.empty()) TENDON_CHECK(grow(slot_bytes));
  const SlotId candidate = size_class.free.back();
  OwnedSegment& segment = segments_[candidate.segment];
  Entry& entry = segment.ledger[candidate.slot];
  if (entry.touched) return Slot::Pages::touched;
  const std::uint64_t needed = full_bytes(slot_bytes, cap_bytes_);
  if (!make_room(slot_bytes, needed - std::min(needed, entry.part_bytes)))
    return exhausted(slot_bytes);
  TENDON_CHECK(claim_pages(segment, candidate.slot));
  return Slot::Pages::untouched;
}

std::optional<Slot> SlotPool::acquire_warm(std::uint64_t size_bytes) noexcept {
  if (size_bytes > cap_bytes_) return {};
  const std::uint64_t slot_bytes = slot_bytes_for(size_bytes);
  SizeClass& size_class = class_of(slot_bytes);
  if (size_class.free.empty()) return {};
  const SlotId top = size_class.free.back();
  Entry& entry = segments_[top.segment].ledger[top.slot];
  const auto pages = entry.touched ? Slot::Pages::touched : Slot::Pages::untouched;
  if (!entry.touched) {
    // At most half of the cap: the rest is for messages of other sizes.
    if (size_class.touched_count >= warm_slots(slot_bytes) ||
        stats_.resident_bytes + slot_bytes > cap_bytes_ / 2) {
      return {};
    }
    if (!claim_pages(segments_[top.segment], top.slot)) return {};
  }
  return take_top(size_class, pages);
}

bool SlotPool::has_warm(std::uint64_t size_bytes) noexcept {
  const std::uint64_t slot_bytes = slot_bytes_for(size_bytes);
  const SizeClass& size_class = class_of(slot_bytes);
  if (size_class.free.empty()) return false;
  const SlotId top = size_class.free.back();
  return segments_[top.segment].ledger[top.slot].touched ||
         size_class.touched_count < warm_slots(slot_bytes);
}

// Claims all pages of an untouched slot. Pages that a refused claim has made are returned, or
// counted.
Result<void> SlotPool::claim_pages(OwnedSegment& segment, std::uint32_t slot) {
  Entry& entry = segment.ledger[slot];
  const std::uint64_t offset = slot * segment.slot_bytes;
  const std::uint64_t bytes = full_bytes(segment.slot_bytes, cap_bytes_);
  auto claimed = claim(*segment.memory, offset, bytes);
  if (claimed) {
    stats_.resident_bytes += bytes - std::exchange(entry.part_bytes, 0);
    entry.touched = true;
    ++class_of(segment.slot_bytes).touched_count;
    return claimed;
  }
  if (segment.pages == OwnedSegment::Pages::given_back && !segment.memory->discard(offset, bytes))
    segment.pages = OwnedSegment::Pages::kept;
  const std::uint64_t left = segment.memory->resident_bytes(offset, bytes);
  stats_.resident_bytes += left - std::exchange(entry.part_bytes, left);
  return claimed;
}

Slot SlotPool::take_top(SizeClass& size_class, Slot::Pages pages) noexcept {
  const SlotId top = size_class.free.back();
  size_class.free.pop_back();
  OwnedSegment& segment = segments_[top.segment];
  Entry& entry = segment.ledger[top.slot];
  entry.state = State::loaned;
  ++entry.generation;
  ++stats_.loaned_count;
  return {{top.segment, top.slot, entry.generation},
          {segment.memory->data() + top.slot * segment.slot_bytes, segment.slot_bytes},
          pages};
}

ColdFill SlotPool::cold_fill(const Slot& slot) const {
  if (slot.pages == Slot::Pages::touched || slot.memory.size() < ColdFill::kLeastBytes) return {};
  const Lock lock(mutex_);
  const Segment& segment = *segments_[slot.id.segment].memory;
  if (segment.fd() < 0) return {};
  // Its own descriptor: any thread may close the segment's as soon as that was passed on.
  OwnedFd file(fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0));
  return {std::move(file), static_cast<std::uint64_t>(slot.memory.data() - segment.data()),
          slot.memory};
}

Result<void> SlotPool::grow(std::uint64_t slot_bytes) {
  const std::uint32_t count = guaranteed_count(slot_bytes, cap_bytes_);
  // A class that has its guaranteed slots leaves room for those of the others.
  const bool further = class_of(slot_bytes).has_segment;
  const std::uint32_t slots_kept = further ? kSlotsOfEveryClass : 0;
  const std::uint32_t segments_kept = further ? static_cast<std::uint32_t>(classes_.size()) : 0;
  if (segments_.size() + segments_kept >= kMaxSegments ||
      slot_count_ + reserved_places_ + count + slots_kept > kMaxSlots ||
      !make_room(slot_bytes, full_bytes(slot_bytes, cap_bytes_))) {
    return exhausted(slot_bytes);
  }
  TENDON_TRY(memory, Segment::create(slot_bytes * count, writers_));
  const auto id = static_cast<std::uint32_t>(segments_.size());
  OwnedSegment& segment = segments_.emplace_back();
  segment.memory = std::move(memory);
  segment.slot_bytes = slot_bytes;
  if (keeps_pages_) segment.pages = OwnedSegment::Pages::kept;
  segment.ledger.resize(count);
  slot_count_ += count;
  ++stats_.segment_count;
  segment_count_.store(id + 1, std::memory_order_release);
  SizeClass& size_class = class_of(slot_bytes);
  size_class.has_segment = true;
  size_class.free.reserve(size_class.free.capacity() + count);
  for (std::uint32_t slot = count; slot > 0; --slot) size_class.free.push_back({id, slot - 1, 0});
  return {};
}

// Makes room for further pages of slots of that size: pages of free slots, of whatever class, are
// returned to the system first, as far as it takes them.
bool SlotPool::make_room(std::uint64_t slot_bytes, std::uint64_t needed_bytes) {
  if (stats_.resident_bytes + needed_bytes <= cap_bytes_) return true;
  // A request that cannot be met must not cost the others their warm slots.
  std::uint64_t in_use_bytes = 0;
  for (const OwnedSegment& segment : segments_)
    for (const Entry& entry : segment.ledger)
      if (entry.touched && entry.state != State::free)
        in_use_bytes += full_bytes(segment.slot_bytes, cap_bytes_);
  if (in_use_bytes + needed_bytes > cap_bytes_) return false;
  // As much again as the cap, and one slot of each size beyond it: otherwise pages that stay would
  // leave no room for slots of other sizes, for ever.
  if (keeps_pages_) {
    return stats_.resident_bytes + needed_bytes <= 2 * cap_bytes_ ||
           (class_of(slot_bytes).touched_count == 0 && larger_with_pages(slot_bytes) == nullptr);
  }
  for (SizeClass& size_class : classes_) {
    for (const SlotId id : size_class.free) {
      OwnedSegment& segment = segments_[id.segment];
      Entry& entry = segment.ledger[id.slot];
      if (!entry.touched || segment.pages != OwnedSegment::Pages::given_back) continue;
      if (!segment.memory->discard(id.slot * segment.slot_bytes, segment.slot_bytes)) {
        segment.pages = OwnedSegment::Pages::kept;
        continue;
      }
      entry.touched = false;
      --size_class.touched_count;
      stats_.resident_bytes -= full_bytes(segment.slot_bytes, cap_bytes_);
      if (stats_.resident_bytes + needed_bytes <= cap_bytes_) return true;
    }
  }
  return false;
}

// Finds a segment with pages that the system does not take back, and with free slots only; the one
// with most pages. A link's is never cut: its peer knows it, and the descriptor is closed.
std::optional<std::uint32_t> SlotPool::segment_to_cut(std::uint64_t slot_bytes) const {
  if (writers_ != Writers::maker_only) return {};
  std::optional<std::uint32_t> best;
  std::uint64_t most_bytes = 0;
  for (std::uint32_t id = 0; id < segments_.size(); ++id) {
    const OwnedSegment& segment = segments_[id];
    if (segment.pages != OwnedSegment::Pages::kept || segment.slot_bytes == slot_bytes ||
        segment.memory->size_bytes() % slot_bytes != 0)
      continue;
    std::uint64_t bytes = 0;
    for (const Entry& entry : segment.ledger)
      bytes += entry.touched ? full_bytes(segment.slot_bytes, cap_bytes_) : entry.part_bytes;
    const bool all_free = std::ranges::all_of(
        segment.ledger, [](const Entry& entry) { return entry.state == State::free; });
    if (!all_free || bytes <= most_bytes) continue;
    best = id;
    most_bytes = bytes;
  }
  return best;
}

// The number under which this memory has slots of that size: a free old one, or a new one. Peers
// may have each of them mapped, so that none gets another meaning.
std::optional<std::uint32_t> SlotPool::cut_of(const std::shared_ptr<Segment>& memory,
                                              std::uint64_t slot_bytes) {
  for (std::uint32_t id = 0; id < segments_.size(); ++id)
    if (segments_[id].memory == memory && segments_[id].slot_bytes == slot_bytes) return id;
  if (segments_.size() >= kMaxSegments) return {};
  OwnedSegment& segment = segments_.emplace_back();
  segment.memory = memory;
  segment.slot_bytes = slot_bytes;
  segment.ledger.resize(memory->size_bytes() / slot_bytes);
  segment_count_.store(static_cast<std::uint32_t>(segments_.size()), std::memory_order_release);
  return static_cast<std::uint32_t>(segments_.size() - 1);
}

// Makes slots of this size from existing memory. False: there is none.
bool SlotPool::cut_anew(std::uint64_t slot_bytes) {
  const auto old_id = segment_to_cut(slot_bytes);
  if (!old_id) return false;
  const auto old_count = static_cast<std::uint32_t>(segments_[*old_id].ledger.size());
  const auto count =
      static_cast<std::uint32_t>(segments_[*old_id].memory->size_bytes() / slot_bytes);
  if (slot_count_ - old_count + reserved_places_ + count > kMaxSlots) return false;
  const auto id = cut_of(segments_[*old_id].memory, slot_bytes);
  if (!id) return false;
  OwnedSegment& old = segments_[*old_id];
  OwnedSegment& fresh = segments_[*id];
  SizeClass& from = class_of(old.slot_bytes);
  SizeClass& to = class_of(slot_bytes);
  std::erase_if(from.free, [&](const SlotId& slot) { return slot.segment == *old_id; });
  for (std::uint32_t slot = 0; slot < old_count; ++slot) {
    Entry& entry = old.ledger[slot];
    std::uint64_t bytes = std::exchange(entry.part_bytes, 0);
    if (std::exchange(entry.touched, false)) {
      bytes = full_bytes(old.slot_bytes, cap_bytes_);
      --from.touched_count;
    }
    // Counted in the new slots there; a part of a slot counts in the first of them.
    for (std::uint64_t at = slot * old.slot_bytes; bytes != 0; at += slot_bytes) {
      const std::uint64_t here = std::min(bytes, slot_bytes);
      fresh.ledger[at / slot_bytes].part_bytes += here;
      bytes -= here;
    }
  }
  std::vector<std::uint32_t> order(count);
  for (std::uint32_t slot = 0; slot < count; ++slot) {
    order[slot] = slot;
    Entry& entry = fresh.ledger[slot];
    if (entry.part_bytes != full_bytes(slot_bytes, cap_bytes_)) continue;
    entry.touched = true;
    entry.part_bytes = 0;
    ++to.touched_count;
  }
  const auto pages = [&](std::uint32_t slot) {
    const Entry& entry = fresh.ledger[slot];
    return entry.touched ? full_bytes(slot_bytes, cap_bytes_) : entry.part_bytes;
  };
  std::ranges::stable_sort(order, {}, pages);
  to.free.reserve(to.free.capacity() + count);
  for (const std::uint32_t slot : order)
    to.free.push_back({*id, slot, fresh.ledger[slot].generation});
  fresh.pages = OwnedSegment::Pages::kept;
  old.pages = OwnedSegment::Pages::cut_anew;
  slot_count_ += count - old_count;
  to.has_segment = true;
  from.has_segment = std::ranges::any_of(segments_, [&](const OwnedSegment& segment) {
    return segment.pages != OwnedSegment::Pages::cut_anew && segment.slot_bytes == old.slot_bytes;
  });
  return true;
}

SlotPool::Entry* SlotPool::find(SlotId id) noexcept {
  if (id.segment >= segments_.size() || id.slot >= segments_[id.segment].ledger.size())
    return nullptr;
  Entry& entry = segments_[id.segment].ledger[id.slot];
  return entry.generation == id.generation ? &entry : nullptr;
}

std::optional<SlotPool::Location> SlotPool::locate(Bytes bytes) const {
  const Lock lock(mutex_);
  for (std::size_t id = 0; id < segments_.size(); ++id) {
    if (segments_[id].pages == OwnedSegment::Pages::cut_anew) continue;
    const auto& memory = segments_[id].memory;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory->data());
    const auto wanted = reinterpret_cast<std::uintptr_t>(bytes.data());
    if (wanted < begin || wanted - begin >= memory->size_bytes()) continue;
    if (bytes.size() > memory->size_bytes() - (wanted - begin)) return {};
    return Location{static_cast<std::uint32_t>(id), wanted - begin, memory};
  }
  return {};
}

void SlotPool::put_back(SlotId id, Entry& entry) noexcept {
  entry.state = State::free;
  class_of(segments_[id.segment].slot_bytes).free.push_back(id);  // reserved in grow()
}

void SlotPool::release(SlotId id) noexcept {
  if (process_ != process_number()) return;  // a thread of the parent may hold the lock
  const Lock lock(mutex_);
  Entry* entry = find(id);
  if (entry == nullptr || entry->state != State::loaned) return;
  --stats_.loaned_count;
  put_back(id, *entry);
}

bool SlotPool::mark_sent(SlotId id) noexcept {
  Entry* entry = find(id);
  if (entry == nullptr || entry->state != State::loaned) return false;
  entry->state = State::sent;
  --stats_.loaned_count;
  ++stats_.sent_count;
  stats_.sent_bytes += segments_[id.segment].slot_bytes;
  return true;
}

bool SlotPool::unmark_sent(SlotId id) noexcept {
  Entry* entry = find(id);
  if (entry == nullptr || entry->state != State::sent) return false;
  entry->state = State::loaned;
  ++stats_.loaned_count;
  --stats_.sent_count;
  stats_.sent_bytes -= segments_[id.segment].slot_bytes;
  return true;
}

bool SlotPool::take_return(SlotId id) noexcept {
  Entry* entry = find(id);
  if (entry == nullptr || (entry->state != State::sent && entry->state != State::quarantined)) {
    ++stats_.ignored_returns;
    return false;
  }
  const std::uint64_t slot_bytes = segments_[id.segment].slot_bytes;
  if (entry->state == State::sent) {
    --stats_.sent_count;
    stats_.sent_bytes -= slot_bytes;
  } else {
    --stats_.quarantined_count;
    stats_.quarantined_bytes -= slot_bytes;
  }
  put_back(id, *entry);
  return true;
}

void SlotPool::quarantine_sent() noexcept {
  for (OwnedSegment& segment : segments_)
    for (Entry& entry : segment.ledger)
      if (entry.state == State::sent) entry.state = State::quarantined;
  stats_.quarantined_count += std::exchange(stats_.sent_count, 0);
  stats_.quarantined_bytes += std::exchange(stats_.sent_bytes, 0);
}

void SlotPool::free_sent() noexcept {
  for (std::uint32_t s = 0; s < segments_.size(); ++s) {
    for (std::uint32_t i = 0; i < segments_[s].ledger.size(); ++i) {
      Entry& entry = segments_[s].ledger[i];
      if (entry.state == State::sent || entry.state == State::quarantined)
        put_back({s, i, entry.generation}, entry);
    }
  }
  stats_.sent_count = stats_.sent_bytes = 0;
  stats_.quarantined_count = stats_.quarantined_bytes = 0;
}

void SlotPool::keep_pages() noexcept {
  const Lock lock(mutex_);
  keeps_pages_ = true;
  for (OwnedSegment& segment : segments_)
    if (segment.pages == OwnedSegment::Pages::given_back) segment.pages = OwnedSegment::Pages::kept;
}

Result<std::vector<SlotId>> SlotPool::free_slots(std::uint64_t size_bytes, std::uint32_t count) {
  if (size_bytes > cap_bytes_) return std::vector<SlotId>();
  const std::uint64_t slot_bytes = slot_bytes_for(size_bytes);
  const Lock lock(mutex_);
  SizeClass& size_class = class_of(slot_bytes);
  if (!size_class.has_segment) TENDON_CHECK(grow(slot_bytes));
  const auto& free = size_class.free;
  // The slots that acquire() will return next lie on top of the stack.
  return std::vector<SlotId>(free.rbegin(),
                             free.rbegin() + std::min<std::ptrdiff_t>(count, std::ssize(free)));
}

Result<bool> SlotPool::prefault_piece(SlotId id, std::uint64_t offset, std::uint64_t limit,
                                      std::uint32_t slot_count) {
  std::shared_ptr<Segment> memory;
  std::uint64_t slot_bytes = 0;
  {
    const Lock lock(mutex_);
    Entry* entry = find(id);
    // Taken meanwhile: the thread that fills it touches it anyway.
    if (entry == nullptr || entry->state != State::free) return false;
    OwnedSegment& segment = segments_[id.segment];
    slot_bytes = segment.slot_bytes;
    if (!entry->touched) {
      if (class_of(slot_bytes).touched_count >= std::max(slot_count, warm_slots(slot_bytes)) ||
          stats_.resident_bytes + full_bytes(slot_bytes, cap_bytes_) - entry->part_bytes >
              cap_bytes_)
        return false;
      TENDON_CHECK(claim_pages(segment, id.slot));
    }
    memory = segment.memory;
  }
  const std::uint64_t end = std::min(limit, slot_bytes);
  if (offset >= end) return false;
  TENDON_CHECK(
      memory->prefault(id.slot * slot_bytes + offset, std::min(kPrefaultBytes, end - offset)));
  return offset + kPrefaultBytes < end;
}

std::vector<SegmentInfo> SlotPool::segments_from(std::uint32_t first) const {
  std::vector<SegmentInfo> infos;
  for (std::uint32_t id = first; id < segments_.size(); ++id) {
    const OwnedSegment& segment = segments_[id];
    infos.push_back({id, static_cast<std::uint32_t>(segment.ledger.size()), segment.slot_bytes,
                     segment.memory});
  }
  return infos;
}

std::uint32_t SlotPool::reserve_places(std::uint32_t count) noexcept {
  // Each size keeps its guaranteed slots.
  const std::uint32_t taken = slot_count_ + reserved_places_ + kSlotsOfEveryClass;
  const std::uint32_t granted = std::min(count, kMaxSlots - std::min(taken, kMaxSlots));
  reserved_places_ += granted;
  return granted;
}

SlotPoolStats SlotPool::stats() const {
  if (process_ != process_number()) return {.cap_bytes = cap_bytes_};
  const Lock lock(mutex_);
  return stats_;
}

Error SlotPool::exhausted(std::uint64_t slot_bytes) const {
  return Error{
      ErrorCode::resource_exhausted, "pool.acquire",
      owner_ + ": no slot of " + std::to_string(slot_bytes) + " bytes: the peer holds " +
          std::to_string(stats_.sent_count) + " slots (" + std::to_string(stats_.sent_bytes) +
          " bytes), quarantined " + std::to_string(stats_.quarantined_count) + " (" +
          std::to_string(stats_.quarantined_bytes) + " bytes), loaned here " +
          std::to_string(stats_.loaned_count) + "; the cap is " + std::to_string(cap_bytes_) +
          " bytes and " + std::to_string(kMaxSlots) + " slots" +
          (writers_ == Writers::maker_only || keeps_pages_
               ? ", and " + std::to_string(stats_.resident_bytes) +
                     " bytes have pages, those of free slots included"
               : "")};
}

}  // namespace tendon::v0::detail
