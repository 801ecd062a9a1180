// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// The name of an event: a string literal, so that the recorder may keep the pointer.
class EventName {
 public:
  consteval EventName(
      const char* literal)  // NOLINT(google-explicit-constructor): `record("attach")`
      : text_(literal) {}
  [[nodiscard]] constexpr const char* text() const noexcept { return text_; }

 private:
  const char* text_;
};

/// One event, as FlightRecorder::dump() returns it.
struct FlightEvent {
  std::uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC, comparable between processes of one host
  std::string_view name;      ///< a literal
  std::string object;         ///< the object of the event, at most FlightRecorder::kMaxObjectBytes
  std::uint64_t a = 0;        ///< meaning depends on the name
  std::uint64_t b = 0;
};

/// The last events of an object, kept in a ring so that a failure can be reported with its history.
///
/// Example:
///   FlightRecorder recorder(256);
///   recorder.record("attach", "loader", 1);
///   recorder.record("lost", "loader", 1, 17);
///   for (const FlightEvent& event : recorder.dump())
///     std::cerr << event.time_ns << ' ' << event.name << ' ' << event.object << '\n';
///
/// Owns:    128 bytes an event, allocated once.
/// Threads: any number record and dump at once.
/// Errors:  none; old events are overwritten, and an event that meets a writer still busy with the
///          same place one round earlier is dropped and counted.
/// Blocks:  never.
/// Cost:    record(): two atomic read-modify-writes, a clock reading and at most 48 copied bytes.
class TENDON_API FlightRecorder {
 public:
  static constexpr std::size_t kMaxObjectBytes = 48;

  /// Keeps the last `capacity` events, rounded up to a power of two, at least 2 and at most 2^20.
  explicit FlightRecorder(std::size_t capacity = 1024);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Records an event; cuts `object` off beyond kMaxObjectBytes. Never pass payload or keys.
  void record(EventName name, std::string_view object, std::uint64_t a = 0,
              std::uint64_t b = 0) noexcept;

  /// The events in the ring, oldest first, without those that are being written at this moment.
  [[nodiscard]] std::vector<FlightEvent> dump() const;
  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }
  /// Events that were lost because two writers met in one place.
  [[nodiscard]] std::uint64_t dropped_count() const noexcept;

 private:
  struct Entry;
  struct State;
  std::size_t mask_;
  std::unique_ptr<State> state_;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace v0
}  // namespace tendon
