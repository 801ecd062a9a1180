// SPDX-License-Identifier: Apache-2.0
#include "support/cuda/streams.hpp"

#include <algorithm>
#include <chrono>

#include "support/cuda/world.hpp"

namespace tendon::cuda_double {
namespace {

/// True if the first entry of the stream may run.
bool is_due(const Stream& stream) {
  const Entry& entry = stream.entries.front();
  const auto& places = stream.context.queues[stream.queue];
  if (stream.world.settings.in_order && *places.begin() != entry.place) return false;
  return std::all_of(entry.after.begin(), entry.after.end(),
                     [](const Point& point) { return point.is_reached(); });
}

/// Delays some entries, as a busy device does; the context may be lost meanwhile.
void hesitate(WorldLock& lock, Stream& stream) {
  World& world = stream.world;
  if (world.settings.seed == 0 || world.settings.delay_us == 0 || world.hesitation() % 4 != 0)
    return;
  const std::chrono::microseconds delay(world.hesitation() % world.settings.delay_us);
  const auto end = std::chrono::steady_clock::now() + delay;
  while (!stream.context.lost && std::chrono::steady_clock::now() < end)
    world.changed.wait_until(lock, end);
}

void run_first(WorldLock& lock, Stream& stream) {
  hesitate(lock, stream);
  Entry& entry = stream.entries.front();
  if (!stream.context.lost) {
    ++stream.world.running;
    lock.unlock();
    running_context() = &stream.context;
    entry.work();
    running_context() = nullptr;
    lock.lock();
    --stream.world.running;
  }
}

/// Drops the entries of a lost context: nothing of them runs, and nothing counts as done.
void drop_entries(Stream& stream) {
  for (const Entry& entry : stream.entries) stream.context.queues[stream.queue].erase(entry.place);
  stream.entries.clear();
}

void run(const std::shared_ptr<Stream>& stream) {
  World& world = stream->world;
  WorldLock lock(world.mutex);
  while (stream->is_open || !stream->entries.empty()) {
    if (stream->context.lost) drop_entries(*stream);
    if (stream->entries.empty() || !is_due(*stream)) {
      world.changed.wait(lock);
      continue;
    }
    run_first(lock, *stream);
    if (!stream->context.lost) {
      stream->context.queues[stream->queue].erase(stream->entries.front().place);
      stream->entries.pop_front();
      ++stream->done;
    }
    world.changed.notify_all();
  }
  stream->context.streams.erase(stream);
}

/// The default streams of a thread, one in each context. They end with the thread.
struct ThreadStreams {
  World* world = nullptr;
  std::map<Context*, std::shared_ptr<Stream>> streams;
  ~ThreadStreams() {
    if (world == nullptr || world->process.load() != getpid()) return;
    const std::lock_guard lock(world->mutex);
    for (const auto& [context, stream] : streams) close_stream(*world, stream);
  }
};

std::shared_ptr<Stream> stream_of_thread(World& world, Context& context) {
  thread_local ThreadStreams mine;
  if (mine.world != &world) {
    mine.streams.clear();
    mine.world = &world;
  }
  auto& stream = mine.streams[&context];
  if (stream == nullptr || !stream->is_open) stream = make_stream(world, context, true);
  return stream;
}

/// Adds the work that a stream must wait for because it synchronises with the legacy default
/// stream.
void add_legacy_order(const std::shared_ptr<Stream>& stream, std::vector<Point>& after) {
  Context& context = stream->context;
  if (!stream->is_blocking || context.legacy == nullptr) return;
  if (stream != context.legacy) {
    after.push_back({context.legacy, context.legacy->enqueued});
    return;
  }
  for (const auto& other : context.streams)
    if (other != stream && other->is_blocking) after.push_back({other, other->enqueued});
}

/// Breaks the captures that forbid a use of the legacy default stream: those of streams that
/// synchronise with it.
bool breaks_capture(const Stream& stream) {
  if (!is_beside_capture(stream)) return false;
  for (const auto& other : stream.context.streams)
    if (other->is_blocking && other->capture != nullptr)
      other->capture->status = CaptureStatus::invalidated;
  return true;
}

}  // namespace

bool Point::is_reached() const { return stream == nullptr || stream->done >= number; }

Context*& running_context() {
  thread_local Context* running = nullptr;
  return running;
}

std::shared_ptr<Stream> make_stream(World& world, Context& context, bool is_blocking) {
  auto stream =
      std::make_shared<Stream>(world, context, context.next_queue++ % kQueueCount, is_blocking);
  context.streams.insert(stream);
  std::thread([stream] { run(stream); }).detach();
  return stream;
}

void close_stream(World& world, const std::shared_ptr<Stream>& stream) {
  stream->is_open = false;
  world.changed.notify_all();
}

std::shared_ptr<Stream> stream_of(World& world, StreamHandle handle, Status& status) {
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  if (number <= v0::detail::cuda::kPerThreadStream) {
    if (current_contexts().empty()) {
      status = Status::invalid_context;
      return nullptr;
    }
    Context& context = *current_contexts().back();
    if (number == v0::detail::cuda::kPerThreadStream) return stream_of_thread(world, context);
    if (context.legacy == nullptr) context.legacy = make_stream(world, context, true);
    return context.legacy;
  }
  for (const Context& context : world.contexts)
    for (const auto& stream : context.streams)
      if (stream->is_open && reinterpret_cast<std::uintptr_t>(stream.get()) == number)
        return stream;
  status = Status::invalid_handle;
  return nullptr;
}

bool is_beside_capture(const Stream& stream) {
  const auto& all = stream.context.streams;
  return &stream == stream.context.legacy.get() &&
         std::any_of(all.begin(), all.end(), [](const std::shared_ptr<Stream>& other) {
           return other->is_blocking && other->capture != nullptr;
         });
}

Status enqueue(WorldLock& lock, const std::shared_ptr<Stream>& stream, std::function<void()> work,
               std::vector<Point> after) {
  Context& context = stream->context;
  if (stream->capture != nullptr) {
    if (stream->capture->status != CaptureStatus::active) return Status::stream_capture_invalidated;
    ++stream->capture->captured;
    return Status::success;
  }
  if (breaks_capture(*stream)) return Status::stream_capture_implicit;
  auto& places = context.queues[stream->queue];
  while (!context.lost && places.size() >= kQueueEntries) stream->world.changed.wait(lock);
  if (context.lost) return *context.lost;
  add_legacy_order(stream, after);
  Entry entry{std::move(work), std::move(after), ++stream->world.last_number};
  places.insert(entry.place);
  stream->entries.push_back(std::move(entry));
  ++stream->enqueued;
  stream->world.changed.notify_all();
  return Status::success;
}

Status wait_for(WorldLock& lock, const Point& point) {
  if (point.stream == nullptr) return Status::success;
  const Context& context = point.stream->context;
  while (!context.lost && !point.is_reached()) point.stream->world.changed.wait(lock);
  return point.is_reached() ? Status::success : *context.lost;
}

void wait_for_all(WorldLock& lock, World& world) {
  std::vector<Point> points;
  for (const Context& context : world.contexts)
    for (const auto& stream : context.streams) points.push_back({stream, stream->enqueued});
  for (const Point& point : points) static_cast<void>(wait_for(lock, point));
}

void lose(World& world, Context& context, Status status) {
  if (!context.lost) context.lost = status;
  world.changed.notify_all();
}

}  // namespace tendon::cuda_double
