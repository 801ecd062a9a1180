// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <tendon/observe/flight_recorder.hpp>
#include <thread>
#include <vector>

namespace {

using tendon::FlightEvent;
using tendon::FlightRecorder;

TEST(FlightRecorder, KeepsWhatWasRecordedInOrder) {
  FlightRecorder recorder(8);
  recorder.record("attach", "link to learner", 1, 2);
  recorder.record("close", "", 3);
  const std::vector<FlightEvent> events = recorder.dump();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "attach");
  EXPECT_EQ(events[0].object, "link to learner");
  EXPECT_EQ(events[0].a, 1u);
  EXPECT_EQ(events[0].b, 2u);
  EXPECT_EQ(events[1].name, "close");
  EXPECT_EQ(events[1].object, "");
  EXPECT_EQ(events[1].a, 3u);
  EXPECT_GT(events[0].time_ns, 0u);
  EXPECT_LE(events[0].time_ns, events[1].time_ns);
}

TEST(FlightRecorder, CapacityIsAPowerOfTwoWithinLimits) {
  EXPECT_EQ(FlightRecorder(0).capacity(), 2u);
  EXPECT_EQ(FlightRecorder(5).capacity(), 8u);
  EXPECT_EQ(FlightRecorder(8).capacity(), 8u);
}

TEST(FlightRecorder, OverwritesTheOldest) {
  FlightRecorder recorder(4);
  for (std::uint64_t i = 0; i < 11; ++i) recorder.record("event", "x", i);
  const std::vector<FlightEvent> events = recorder.dump();
  ASSERT_EQ(events.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(events[i].a, 7 + i);
  EXPECT_EQ(recorder.dropped_count(), 0u);
}

TEST(FlightRecorder, CutsLongObjects) {
  FlightRecorder recorder(2);
  const std::string exact(FlightRecorder::kMaxObjectBytes, 'a');
  recorder.record("fits", exact);
  recorder.record("cut", exact + "b");
  const auto events = recorder.dump();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].object, exact);
  EXPECT_EQ(events[1].object, exact);
}

TEST(FlightRecorder, ObjectsAreFitToBeShown) {
  FlightRecorder recorder(2);
  recorder.record("named", "a\u202eb\n");
  recorder.record("cut", std::string(FlightRecorder::kMaxObjectBytes - 1, 'a') + "\u00e9");
  const auto events = recorder.dump();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].object, "a b ");
  EXPECT_EQ(events[1].object, std::string(FlightRecorder::kMaxObjectBytes - 1, 'a') + " ");
}

// An event holds one number in every field, so that a mixture of two events is detected.
TEST(FlightRecorder, ReadersSeeWholeEventsWhileThreadsWrite) {
  constexpr int kChanges = 200;  // events that were not there at the previous look
  FlightRecorder recorder(2);    // small, so that writers collide
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> is_over{false};
  const auto write = [&] {
    while (!is_over.load(std::memory_order_relaxed)) {
      const std::uint64_t value = next.fetch_add(1);
      const std::string text = std::to_string(value);
      recorder.record("mixed", std::string(48 - text.size(), 'o') + text, value, ~value);
    }
  };
  {
    std::jthread one(write);
    std::jthread other(write);
    std::uint64_t newest = 0;
    for (int changes = 0; changes < kChanges && !HasFailure();) {
      for (const FlightEvent& event : recorder.dump()) {
        const std::string text = std::to_string(event.a);
        EXPECT_EQ(event.b, ~event.a);
        EXPECT_EQ(event.object, std::string(48 - text.size(), 'o') + text);
        if (event.a > newest) ++changes;
        newest = std::max(newest, event.a);
      }
    }
    is_over.store(true);
  }
  EXPECT_LE(recorder.dump().size(), 2u);
  EXPECT_LT(recorder.dropped_count(), next.load());
}

}  // namespace
