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

/// The link's number of a GPU.
struct Known {
  DevicesOut* devices = nullptr;  ///< null: the peer is not shown samples there
  std::uint32_t number = 0;
};

Known known_at(Link& link, const cuda::Uuid& gpu) {
  if (!link.features().has(Feature::device_samples) || link.ended()) return {};
  SharedMemoryLink* const memory = link.shared_memory();
  if (memory == nullptr) return {};
  const auto number = offer_gpu(link, gpu, kHere);
  return number ? Known{&memory->devices_out(), *number} : Known{};
}

bool has_no_room(const Error& error) { return error.code == ErrorCode::resource_exhausted; }

}  // namespace

Way way_of(Link& link, const cuda::Uuid& gpu) {
  const Known known = known_at(link, gpu);
  return known.devices == nullptr ? Way::staged : known.devices->way(known.number);
}

Way ask_way(Link& link, const cuda::DeviceSlot& slot) {
  const auto [devices, number] = known_at(link, slot.segment()->context().uuid());
  if (devices == nullptr) return Way::staged;
  const Way way = devices->way(number);
  if (way == Way::direct) return way;
  if (way == Way::staged) {
    devices->ask_again(number, slot.pool(), Deadline::now());
    return way;
  }
  const auto shared = devices->share(number, slot);
  if (!shared || !devices->is_answered_soon() || devices->is_late(number)) return Way::staged;
  return devices->way(number);
}

void note_late(Link& link, const cuda::DeviceSlot& slot) {
  const Known known = known_at(link, slot.segment()->context().uuid());
  if (known.devices != nullptr) known.devices->note_late(known.number);
}

bool has_share(Link& link, const cuda::DeviceSlot& slot) {
  (void)link.collect_returns();
  const auto hold = link.shared_memory()->devices_out().hold(slot);
  return hold && *hold != nullptr;  // offered, then revoked
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
