// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <tendon/core/deadline.hpp>
#include <vector>

#include "cuda/driver_table.hpp"
#include "cuda/watch_pace.hpp"

namespace tendon::v0::detail::cuda {

/// An event, and the function to call when the GPU has reached it.
struct WatchedEvent {
  ContextHandle context = nullptr;
  EventHandle event = nullptr;
  /// Receives `success`, or the status of a lost context, whose events are never reached.
  std::function<void(Status)> then;
  /// Instead of an event: a stream, reported when it is not being captured.
  StreamHandle captured = nullptr;
};

/// The events that the device thread polls.
///
/// Owns:    nothing of the driver: the event exists until its `then` was called.
/// Threads: the device thread alone.
/// Errors:  those of the driver reach `then`.
/// Blocks:  never.
/// Cost:    some 0.3 us for an event and a look.
class EventWatch {
 public:
  explicit EventWatch(const DriverTable& table) : table_(table) {}

  void add(std::vector<WatchedEvent> events);
  [[nodiscard]] bool is_empty() const noexcept { return events_.empty(); }
  /// Queries all events if it is time to, and reports those that the GPU has reached.
  void look_if_due();
  /// The time of the next query.
  [[nodiscard]] Deadline next_look() const { return Deadline::at(next_look_); }

 private:
  [[nodiscard]] Status query(const WatchedEvent& watched) const;

  const DriverTable& table_;
  std::vector<WatchedEvent> events_;
  WatchPace pace_;
  WatchPace::TimePoint next_look_{};
};

}  // namespace tendon::v0::detail::cuda
