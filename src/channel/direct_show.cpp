// SPDX-License-Identifier: Apache-2.0
#include "channel/direct_show.hpp"

#include <utility>

#include "channel/gpu_offer.hpp"
#include "cuda/primary_context.hpp"
#include "transport/shared_memory_link.hpp"

namespace tendon::v0::detail {
namespace {

using Way = DevicesOut::Way;

constexpr std::string_view kHere = "channel.show";

SharedMemoryLink* memory_for_samples(Link& link) {
  return link.features().has(Feature::device_samples) ? link.shared_memory() : nullptr;
}

bool has_no_room(const Error& error) { return error.code == ErrorCode::resource_exhausted; }

}  // namespace

Way way_of(Link& link, const cuda::Uuid& gpu) {
  SharedMemoryLink* const memory = memory_for_samples(link);
  if (memory == nullptr || link.ended()) return Way::staged;
  const auto number = offer_gpu(link, gpu, kHere);
  return number ? memory->devices_out().way(*number) : Way::staged;
}

Way ask_way(Link& link, const cuda::DeviceSlot& slot) {
  const cuda::Uuid& gpu = slot.segment()->context().uuid();
  const Way way = way_of(link, gpu);
  if (way == Way::direct || memory_for_samples(link) == nullptr || link.ended()) return way;
  const auto number = offer_gpu(link, gpu, kHere);
  if (!number) return Way::staged;
  DevicesOut& devices = link.shared_memory()->devices_out();
  if (way == Way::staged) {
    devices.ask_again(*number, slot.pool(), Deadline::now());
    return way;
  }
  const auto shared = devices.share(*number, slot);
  if (!shared || !devices.is_answered_soon() || devices.is_late(*number)) return Way::staged;
  return devices.way(*number);
}

void note_late(Link& link, const cuda::DeviceSlot& slot) {
  if (memory_for_samples(link) == nullptr || link.ended()) return;
  const auto number = offer_gpu(link, slot.segment()->context().uuid(), kHere);
  if (number) link.shared_memory()->devices_out().note_late(*number);
}

bool has_share(Link& link, const cuda::DeviceSlot& slot) {
  (void)link.collect_returns();
  const auto hold = link.shared_memory()->devices_out().hold(slot);
  return hold && *hold != nullptr;  // given and taken back
}

Result<DirectShow::Made> DirectShow::make(Link& link, const LeavesOnGpu& leaves) {
  DevicesOut& devices = link.shared_memory()->devices_out();
  TENDON_TRY(number, offer_gpu(link, leaves.slot->segment()->context().uuid(), kHere));
  auto shared = devices.share(number, *leaves.slot);
  if (!shared && has_no_room(shared.error())) return Made::beyond_share;
  if (!shared) return std::move(shared).error();
  if (*shared == Sent::later) return Made::later;
  (void)link.collect_returns();
  TENDON_TRY(hold, devices.hold(*leaves.slot));
  if (hold == nullptr) return Made::beyond_share;
  const SlotId id = leaves.slot->id();
  part_.device = number;
  part_.segment = id.segment;
  part_.slot = id.slot;
  part_.generation = id.generation;
  part_.size_bytes = leaves.size_bytes;
  slot_ = leaves.slot;
  hold_ = std::move(hold);
  return Made::yes;
}

}  // namespace tendon::v0::detail
