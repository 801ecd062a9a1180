// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu.hpp"

#include <string>
#include <utility>

namespace tendon::v0::detail::cuda {
namespace {

void destroy(PrimaryContext& context, const std::vector<EventHandle>& events) {
  const PrimaryContext::Current current(context);
  if (!current.made()) return;  // they have ended with the context
  for (const EventHandle event : events)
    context.note_release(context.table().event_destroy(event), "cuEventDestroy_v2");
}

}  // namespace

Gpu::Gpu(std::shared_ptr<PrimaryContext> context, DeviceThread& thread)
    : context_(std::move(context)), thread_(thread) {}

Gpu::~Gpu() {
  if (!context_->is_of_this_process() || free_events_.empty()) return;
  // A device thread that ends takes no further jobs: the driver takes the events back.
  (void)thread_.post([context = context_, events = std::move(free_events_)] {
    destroy(*context, events);
  });
}

Result<EventHandle> Gpu::take_event() {
  {
    const Lock lock(mutex_);
    if (!free_events_.empty()) {
      const EventHandle event = free_events_.back();
      free_events_.pop_back();
      return event;
    }
  }
  const PrimaryContext::Current current(*context_);
  TENDON_CHECK(current.made());
  EventHandle event = nullptr;
  TENDON_CHECK(context_->check(context_->table().event_create(&event, EventFlags::untimed),
                               "cuda.event", "cuEventCreate on " + to_string(context_->device())));
  return event;
}

void Gpu::keep_for_good(std::vector<std::shared_ptr<const void>> owners) {
  const Lock lock(mutex_);
  kept_for_good_.insert(kept_for_good_.end(), owners.begin(), owners.end());
}

void Gpu::put_event(EventHandle event) {
  const Lock lock(mutex_);
  free_events_.push_back(event);
}

}  // namespace tendon::v0::detail::cuda
