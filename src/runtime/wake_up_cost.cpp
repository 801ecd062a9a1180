// SPDX-License-Identifier: Apache-2.0
#include "runtime/wake_up_cost.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/fd.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr microseconds kLeast{10};
constexpr microseconds kMost{60};
constexpr microseconds kUnknown{40};

microseconds measure() {
  constexpr std::size_t kSleeps = 5;
  // Long enough for the CPU to idle, as it would when a peer's answer arrives.
  constexpr nanoseconds kSleep = microseconds(100);
  // A timerfd is not delayed by the timer slack of the thread.
  const OwnedFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (timer.get() < 0) return kUnknown;
  std::vector<Clock::duration> late;
  for (std::size_t i = 0; i < kSleeps; ++i) {
    const itimerspec once{.it_interval = {}, .it_value = {0, kSleep.count()}};
    const auto begun = Clock::now();
    std::uint64_t expired = 0;
    if (timerfd_settime(timer.get(), 0, &once, nullptr) != 0 ||
        read(timer.get(), &expired, sizeof expired) != sizeof expired) {
      continue;  // a signal interrupted it
    }
    late.push_back(Clock::now() - begun - kSleep);
  }
  if (late.empty()) return kUnknown;
  const auto middle = late.begin() + static_cast<std::ptrdiff_t>(late.size() / 2);
  std::nth_element(late.begin(), middle, late.end());
  return std::clamp(std::chrono::duration_cast<microseconds>(*middle), kLeast, kMost);
}

}  // namespace

// Two threads may measure at once. A static object would need a lock, which a forked child could
// inherit while it is held.
microseconds wake_up_cost() {
  static std::atomic<microseconds::rep> known{0};
  auto cost = known.load(std::memory_order_relaxed);
  if (cost == 0) known.store(cost = measure().count(), std::memory_order_relaxed);
  return microseconds(cost);
}

}  // namespace tendon::v0::detail
