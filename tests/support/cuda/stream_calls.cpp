// SPDX-License-Identifier: Apache-2.0
// Streams and events as the program sees them.
#include "support/cuda/functions.hpp"
#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

std::shared_ptr<Event> event_of(World& all, EventHandle handle) {
  const auto found = all.events.find(handle);
  return found == all.events.end() ? nullptr : found->second;
}

/// Returns whether all work up to `point` is done.
Status look(const Point& point) {
  if (point.is_reached()) return Status::success;
  const Context& context = point.stream->context;
  return context.lost ? *context.lost : Status::not_ready;
}

/// Breaks the capture of a stream that a call waits for or queries.
bool breaks_own_capture(const Stream& stream) {
  if (stream.capture == nullptr) return false;
  stream.capture->status = CaptureStatus::invalidated;
  return true;
}

}  // namespace

Status stream_create(StreamHandle* handle, StreamFlags flags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (current_contexts().empty()) return Status::invalid_context;
  const auto stream =
      make_stream(all, *current_contexts().back(), flags != StreamFlags::non_blocking);
  *handle = reinterpret_cast<StreamHandle>(stream.get());
  return Status::success;
}

Status stream_destroy(StreamHandle handle) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (reinterpret_cast<std::uintptr_t>(handle) <= kPerThreadStream) return Status::invalid_handle;
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  close_stream(all, stream);
  return Status::success;
}

Status stream_query(StreamHandle handle) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  if (breaks_own_capture(*stream)) return Status::stream_capture_unsupported;
  return look({stream, stream->enqueued});
}

Status stream_synchronize(StreamHandle handle) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  if (breaks_own_capture(*stream)) return Status::stream_capture_unsupported;
  return wait_for(lock, {stream, stream->enqueued});
}

Status stream_wait_event(StreamHandle handle, EventHandle event_handle, unsigned flags) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  const auto event = event_of(all, event_handle);
  if (event == nullptr) return Status::invalid_handle;
  if (flags != 0) return Status::invalid_value;
  // A stream that waits for captured work is captured too.
  if (event->capture != nullptr && stream->capture == nullptr) stream->capture = event->capture;
  return enqueue(lock, stream, [] {}, {event->point});
}

Status stream_get_context(StreamHandle handle, ContextHandle* context) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  *context = reinterpret_cast<ContextHandle>(&stream->context);
  return Status::success;
}

Status stream_get_capture_info(StreamHandle handle, CaptureStatus* capture_status,
                               std::uint64_t* id, GraphHandle* graph,
                               const GraphNodeHandle** dependencies,
                               std::size_t* dependency_count) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, handle, status);
  if (stream == nullptr) return status;
  if (is_beside_capture(*stream)) return Status::stream_capture_implicit;  // breaks nothing
  const Capture* const capture = stream->capture.get();
  *capture_status = capture != nullptr ? capture->status : CaptureStatus::none;
  if (id != nullptr && capture != nullptr) *id = capture->id;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (dependency_count != nullptr) *dependency_count = 0;
  return Status::success;
}

Status thread_exchange_capture_mode(CaptureMode* mode) {
  std::swap(*mode, capture_mode());
  return Status::success;
}

Status event_create(EventHandle* handle, EventFlags) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  if (current_contexts().empty()) return Status::invalid_context;
  auto event = std::make_shared<Event>();
  *handle = reinterpret_cast<EventHandle>(event.get());
  all.events[*handle] = std::move(event);
  return Status::success;
}

Status event_destroy(EventHandle handle) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  return all.events.erase(handle) == 1 ? Status::success : Status::invalid_handle;
}

Status event_record(EventHandle handle, StreamHandle stream_handle) {
  World& all = world();
  WorldLock lock(all.mutex);
  Status status = Status::success;
  const auto stream = stream_of(all, stream_handle, status);
  if (stream == nullptr) return status;
  const auto event = event_of(all, handle);
  if (event == nullptr) return Status::invalid_handle;
  status = enqueue(lock, stream, [] {});
  if (status != Status::success) return status;
  event->capture = stream->capture;
  event->point = stream->capture == nullptr ? Point{stream, stream->enqueued} : Point{};
  return Status::success;
}

Status event_query(EventHandle handle) {
  World& all = world();
  const std::lock_guard lock(all.mutex);
  const auto event = event_of(all, handle);
  if (event == nullptr) return Status::invalid_handle;
  if (event->capture != nullptr) return Status::captured_event;
  return look(event->point);
}

}  // namespace tendon::cuda_double
