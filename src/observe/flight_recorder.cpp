// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <tendon/observe/flight_recorder.hpp>

#include "core/text.hpp"

namespace tendon::v0 {
namespace {

constexpr std::size_t kTextWords = FlightRecorder::kMaxObjectBytes / sizeof(std::uint64_t);
static_assert(FlightRecorder::kMaxObjectBytes % sizeof(std::uint64_t) == 0);

std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

// A sequence lock: `turn` is 2n+1 while event n is written and 2n+2 once it is whole. The words are
// atomic because readers may look while a writer writes. They are stored with release and loaded
// with acquire, so that a reader that saw any new word also sees the new turn. (A fence would do
// the same, but the thread sanitizer of g++ 12 does not know fences.)
struct alignas(128) FlightRecorder::Entry {
  std::atomic<std::uint64_t> turn{0};
  std::atomic<std::uint64_t> time_ns{0};
  std::atomic<const char*> name{nullptr};
  std::atomic<std::uint64_t> a{0};
  std::atomic<std::uint64_t> b{0};
  std::atomic<std::uint64_t> object_bytes{0};
  std::array<std::atomic<std::uint64_t>, kTextWords> object{};
};

struct FlightRecorder::State {
  alignas(128) std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> dropped{0};
};

FlightRecorder::FlightRecorder(std::size_t capacity)
    : mask_(std::bit_ceil(std::clamp<std::size_t>(capacity, 2, std::size_t{1} << 20)) - 1),
      state_(std::make_unique<State>()),
      entries_(std::make_unique<Entry[]>(mask_ + 1)) {}

FlightRecorder::~FlightRecorder() = default;

void FlightRecorder::record(EventName name, std::string_view object, std::uint64_t a,
                            std::uint64_t b) noexcept {
  const std::uint64_t n = state_->next.fetch_add(1, std::memory_order_relaxed);
  Entry& entry = entries_[n & mask_];
  std::uint64_t turn = entry.turn.load(std::memory_order_relaxed);
  // Odd: a writer of an earlier round is still in here. Greater: one of a later round was faster.
  if (turn % 2 != 0 || turn > 2 * n ||
      !entry.turn.compare_exchange_strong(turn, 2 * n + 1, std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
    state_->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::size_t size = std::min(object.size(), kMaxObjectBytes);
  std::array<std::uint64_t, kTextWords> words{};
  std::memcpy(words.data(), object.data(), size);
  entry.time_ns.store(monotonic_ns(), std::memory_order_release);
  entry.name.store(name.text(), std::memory_order_release);
  entry.a.store(a, std::memory_order_release);
  entry.b.store(b, std::memory_order_release);
  entry.object_bytes.store(size, std::memory_order_release);
  for (std::size_t i = 0; i < kTextWords; ++i) {
    entry.object[i].store(words[i], std::memory_order_release);
  }
  entry.turn.store(2 * n + 2, std::memory_order_release);
}

std::vector<FlightEvent> FlightRecorder::dump() const {
  struct Numbered {
    std::uint64_t turn;
    FlightEvent event;
  };
  std::vector<Numbered> found;
  found.reserve(capacity());
  for (std::size_t i = 0; i < capacity(); ++i) {
    const Entry& entry = entries_[i];
    const std::uint64_t turn = entry.turn.load(std::memory_order_acquire);
    if (turn == 0 || turn % 2 != 0) continue;
    FlightEvent event;
    event.time_ns = entry.time_ns.load(std::memory_order_acquire);
    const char* name = entry.name.load(std::memory_order_acquire);
    event.a = entry.a.load(std::memory_order_acquire);
    event.b = entry.b.load(std::memory_order_acquire);
    const std::uint64_t size = entry.object_bytes.load(std::memory_order_acquire);
    std::array<std::uint64_t, kTextWords> words{};
    for (std::size_t w = 0; w < kTextWords; ++w) {
      words[w] = entry.object[w].load(std::memory_order_acquire);
    }
    if (entry.turn.load(std::memory_order_relaxed) != turn) continue;
    event.name = name;
    // A peer's name may be in it, and its last character may have been cut.
    event.object = detail::cleaned({reinterpret_cast<const char*>(words.data()), size});
    found.push_back({turn, std::move(event)});
  }
  std::sort(found.begin(), found.end(),
            [](const Numbered& x, const Numbered& y) { return x.turn < y.turn; });
  std::vector<FlightEvent> events;
  events.reserve(found.size());
  for (Numbered& one : found) events.push_back(std::move(one.event));
  return events;
}

std::uint64_t FlightRecorder::dropped_count() const noexcept {
  return state_->dropped.load(std::memory_order_relaxed);
}

}  // namespace tendon::v0
