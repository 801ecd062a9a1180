// SPDX-License-Identifier: Apache-2.0
#include "runtime/publishing.hpp"

#include <algorithm>

#include "transport/shared_memory_link.hpp"

namespace tendon::v0::detail {

template <class Pass>
Result<Sent> Publishing::show_once(std::uint32_t name, const Audience& audience, Pass pass) {
  const Lock lock(mutex_);
  if (was_shown(name, audience)) return Sent::done;
  TENDON_TRY(passed, pass());
  if (passed == Sent::done) note_shown(name, audience);
  return passed;
}

// The publish pool

Result<std::shared_ptr<PublishedSlot>> Publishing::acquire(std::uint64_t size_bytes) {
  (void)sends_.take_back();
  auto slot = pool_->acquire(size_bytes);
  if (slot || slot.error().code != ErrorCode::resource_exhausted) return slot;
  if (!links_.collect_returns(LinkTable::Of::all)) return slot;
  return pool_->acquire(size_bytes);
}

Result<Sent> Publishing::prepare(Link& link, SendOp& op, Deadline deadline) {
  SharedMemoryLink* const memory = link.shared_memory();
  if (memory != nullptr && memory->takes_holds()) {
    const Audience whole_link{link.weak_from_this()};
    TENDON_TRY(shared, show_once(op.published->id().segment, whole_link, [&] {
                 return memory->share_segment(pool_->segment_of(*op.published));
               }));
    if (shared == Sent::later) return Sent::later;
  }
  return link.prepare(op, deadline);
}

// Segments of groups

std::uint32_t Publishing::name(const std::shared_ptr<Segment>& segment) {
  const Lock lock(mutex_);
  for (const Shown& shown : shown_)
    if (shown.segment == segment) return shown.name;
  shown_.push_back({segment, next_name_++, {}});
  return shown_.back().name;
}

Result<Sent> Publishing::show(Link& link, std::uint32_t pipe,
                              const std::shared_ptr<Segment>& segment) {
  const std::uint32_t id = name(segment);
  SharedMemoryLink* const memory = link.shared_memory();
  if (memory == nullptr) {
    return Error{ErrorCode::not_supported, "link.publish",
                 "peer " + link.peer_name() +
                     " cannot map memory of this process: " + link.path().to_string()};
  }
  return show_once(id, {link.weak_from_this(), pipe},
                   [&] { return memory->publish_segment(pipe, id, *segment); });
}

void Publishing::forget(const std::shared_ptr<Segment>& segment) {
  const Lock lock(mutex_);
  std::erase_if(shown_, [&](const Shown& shown) { return shown.segment == segment; });
}

Publishing::Shown* Publishing::find(std::uint32_t name) {
  const auto found = std::ranges::find(shown_, name, &Shown::name);
  return found == shown_.end() ? nullptr : &*found;
}

bool Publishing::was_shown(std::uint32_t name, const Audience& audience) {
  const Shown* const shown = find(name);
  return shown != nullptr && std::ranges::any_of(shown->to, [&](const Audience& other) {
           // Compares the links themselves, dead or alive, because an address may be reused.
           return other.pipe == audience.pipe && !other.link.owner_before(audience.link) &&
                  !audience.link.owner_before(other.link);
         });
}

void Publishing::note_shown(std::uint32_t name, const Audience& audience) {
  Shown* shown = find(name);
  // A name of a group's segment may be forgotten meanwhile; names of the pool first appear here.
  if (shown == nullptr && name >= kFirstName) return;
  if (shown == nullptr) shown = &shown_.emplace_back(Shown{nullptr, name, {}});
  std::erase_if(shown->to, [](const Audience& other) { return other.link.expired(); });
  shown->to.push_back(audience);
}

}  // namespace tendon::v0::detail
