// SPDX-License-Identifier: Apache-2.0
// Streams of the double, one thread each, and the queues that they share.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cuda/driver_types.hpp"

namespace tendon::cuda_double {

using v0::detail::cuda::CaptureMode;
using v0::detail::cuda::CaptureStatus;
using v0::detail::cuda::Status;
using v0::detail::cuda::StreamHandle;

inline constexpr std::size_t kQueueCount = 8;
inline constexpr std::size_t kQueueEntries = 1024;

struct World;
struct Context;
struct Stream;

/// The work of a stream up to one entry, including that one.
struct Point {
  std::shared_ptr<Stream> stream;
  std::uint64_t number = 0;
  [[nodiscard]] bool is_reached() const;
};

struct Entry {
  std::function<void()> work;
  std::vector<Point> after;
  std::uint64_t place = 0;  ///< in its queue
};

/// A capture: the work of its streams is recorded and not run.
struct Capture {
  CaptureMode mode = CaptureMode::global;
  CaptureStatus status = CaptureStatus::active;
  std::thread::id begun_by;
  std::uint64_t id = 0;
  std::size_t captured = 0;
};

struct Stream {
  Stream(World& its_world, Context& its_context, std::size_t its_queue, bool blocks)
      : world(its_world), context(its_context), queue(its_queue), is_blocking(blocks) {}

  World& world;
  Context& context;
  const std::size_t queue;
  const bool is_blocking;  ///< synchronises with the legacy default stream
  std::deque<Entry> entries;
  std::uint64_t enqueued = 0;
  std::uint64_t done = 0;
  bool is_open = true;
  std::shared_ptr<Capture> capture;
};

/// The primary context of a device.
struct Context {
  int device = 0;
  int retained = 0;
  std::optional<Status> lost;
  std::array<std::set<std::uint64_t>, kQueueCount> queues;  ///< places of entries that are not done
  std::set<std::shared_ptr<Stream>> streams;
  std::shared_ptr<Stream> legacy;
  std::size_t next_queue = 0;
};

using WorldLock = std::unique_lock<std::mutex>;

std::shared_ptr<Stream> make_stream(World& world, Context& context, bool is_blocking);
/// Ends the stream when its work is done. Releasing calls wait for it as for any other.
void close_stream(World& world, const std::shared_ptr<Stream>& stream);
/// Returns null, and sets `status`, if there is no such stream.
std::shared_ptr<Stream> stream_of(World& world, StreamHandle handle, Status& status);
/// Waits for a place in the queue. The stream then runs `work` after its own work and everything in
/// `after`.
Status enqueue(WorldLock& lock, const std::shared_ptr<Stream>& stream, std::function<void()> work,
               std::vector<Point> after = {});
/// True if it is the legacy default stream while a stream that synchronises with it is captured.
bool is_beside_capture(const Stream& stream);
/// Waits until the work up to a point is done or lost.
Status wait_for(WorldLock& lock, const Point& point);
/// Waits for all work of all streams, as releasing calls do.
void wait_for_all(WorldLock& lock, World& world);
void lose(World& world, Context& context, Status status);
/// The context whose work the calling thread runs; null in threads of the program.
Context*& running_context();

}  // namespace tendon::cuda_double
