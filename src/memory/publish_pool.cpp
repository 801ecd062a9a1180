// SPDX-License-Identifier: Apache-2.0
#include "memory/publish_pool.hpp"

#include <string>
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
    : slots_("publish pool of this context", cap_bytes, Writers::maker_only),
      holds_(slots_.cap_bytes()) {}

Result<std::shared_ptr<PublishedSlot>> PublishPool::acquire(std::uint64_t size_bytes) {
  if (size_bytes > cap_bytes()) {
    return Error{ErrorCode::message_too_large, kWhere,
                 "a sample of " + std::to_string(size_bytes) + " bytes, at most " +
                     std::to_string(cap_bytes()) + " fit (ContextOptions::publish_bytes)"};
  }
  auto slot = slots_.acquire(size_bytes);
  if (!slot && slot.error().code == ErrorCode::resource_exhausted) {
    Error full = std::move(slot).error();
    full.detail += "; " + holds_.most_held() + " (ContextOptions::publish_bytes)";
    return full;
  }
  if (!slot) return std::move(slot).error();
  slot->id = outside(slot->id);
  holds_.begin(slot->id, slot->memory.size());
  return make_recycled<PublishedSlot>(shared_from_this(), *slot);
}

SegmentInfo PublishPool::segment_of(const PublishedSlot& slot) {
  SegmentInfo info = slots_.ledger().segments_from(inside(slot.id()).segment).front();
  info.id = slot.id().segment;
  return info;
}

void PublishPool::drop_owner(SlotId id) {
  if (holds_.drop_owner(id)) release(id);
}

void PublishPool::end_link(LinkNumber link, Death death) {
  for (const SlotId id : holds_.end_link(link, death)) release(id);
}

// The ledger has ended the last hold of this use, and nobody can get another one.
void PublishPool::release(SlotId id) noexcept { slots_.release(inside(id)); }

PublishPoolStats PublishPool::stats() const { return {holds_.stats(), slots_.stats()}; }

}  // namespace tendon::v0::detail
