// SPDX-License-Identifier: Apache-2.0
#include "cuda/gpu.hpp"

#include <string>
#include <utility>

namespace tendon::v0::detail::cuda {
namespace {

void destroy(PrimaryContext& context, const std::vector<EventHandle>& events, StreamHandle stream) {
  const PrimaryContext::Current current(context);
  if (!current.made()) return;  // they have ended with the context
  if (stream != nullptr)
    context.note_release(context.table().stream_destroy(stream), "cuStreamDestroy_v2");
  for (const EventHandle event : events)
    context.note_release(context.table().event_destroy(event), "cuEventDestroy_v2");
}

}  // namespace

Gpu::Gpu(std::shared_ptr<PrimaryContext> context, DeviceThread& thread)
    : context_(std::move(context)),
      thread_(thread),
      gather_kernel_(std::make_shared<GatherKernel>(context_, thread)) {}

Gpu::~Gpu() {
  if (!context_->is_of_this_process()) return;
  if (free_events_.empty() && own_stream_ == nullptr) return;
  // A device thread that ends takes no further jobs: the driver takes the events back.
  (void)thread_.post([context = context_, events = std::move(free_events_), stream = own_stream_] {
    destroy(*context, events, stream);
  });
}

Result<StreamHandle> Gpu::own_stream() {
  if (own_stream_ != nullptr) return own_stream_;
  const PrimaryContext::Current current(*context_);
  TENDON_CHECK(current.made());
  TENDON_CHECK(
      context_->check(context_->table().stream_create(&own_stream_, StreamFlags::non_blocking),
                      "cuda.stream", "cuStreamCreate on " + to_string(context_->device())));
  return own_stream_;
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

void Gpu::put_event(EventHandle event) {
  const Lock lock(mutex_);
  free_events_.push_back(event);
}

void Gpu::keep_for_good(std::vector<std::shared_ptr<const void>> owners) {
  const Lock lock(mutex_);
  kept_for_good_.insert(kept_for_good_.end(), owners.begin(), owners.end());
}

}  // namespace tendon::v0::detail::cuda
