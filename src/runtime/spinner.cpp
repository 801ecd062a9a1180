// SPDX-License-Identifier: Apache-2.0
#include "runtime/spinner.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "core/pause.hpp"
#include "runtime/settings.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSmallestSpinUs = 4;
constexpr std::uint32_t kLargestSpinUs = 64;
constexpr std::uint32_t kLatencySpinUs = 1000;

}  // namespace

Spinner::Spinner(WaitPolicy policy, Activity& activity)
    : policy_(policy),
      // A user that asks for latency has given each side a core; affinity to one says nothing about
      // the peer's.
      cpu_count_(policy == WaitPolicy::latency ? quota_cpu_count() : effective_cpu_count()),
      activity_(activity),
      budget_us_(kSmallestSpinUs) {}

bool Spinner::spin(WaitedLinks links, Deadline deadline, Attempt attempt, Moves moves) {
  if (cpu_count_ < 2 || policy_ == WaitPolicy::blocking) return false;
  const bool is_latency = policy_ == WaitPolicy::latency;
  const std::uint32_t budget_us =
      is_latency ? kLatencySpinUs : budget_us_.load(std::memory_order_relaxed);
  // More spinners than cores would only keep each other's peers from running.
  if (spinner_count_.fetch_add(1, std::memory_order_relaxed) >= cpu_count_) {
    spinner_count_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  // Input of a link over sockets shows only to a system call, so each round costs more.
  const bool show_input = !links.empty() && std::ranges::all_of(links, [](const Link* link) {
    return link->traits().shows_input;
  });
  const auto may_succeed = [&] {
    return !show_input || std::ranges::any_of(links, [](const Link* link) {
      return link->has_input() || link->ended();
    });
  };
  const unsigned clock_mask = show_input || links.empty() ? 63 : 7;
  // Members of a group may be more than CPUs; the two ends of a pipe are not.
  const unsigned rounds_alone = links.empty() ? 8 : 48;
  const auto budget = std::chrono::microseconds(budget_us);
  auto end = std::min(Clock::now() + budget, deadline.time_point());
  std::uint64_t moved = moves != nullptr ? moves->load(std::memory_order_relaxed) : 0;
  bool done = false;
  for (unsigned round = 1; !done; ++round) {
    if (may_succeed()) done = attempt();
    if (done) break;
    // The thread that this one waits for may need its CPU. What is nearly there comes before.
    const bool yields = !is_latency && round > rounds_alone && (round & 7) == 0;
    if (yields)
      sched_yield();
    else
      pause_briefly();
    if (yields || (round & clock_mask) == 0) {
      activity_.note();
      const auto now = Clock::now();
      if (moves != nullptr && moves->load(std::memory_order_relaxed) != moved) {
        moved = moves->load(std::memory_order_relaxed);
        end = std::min(now + budget, deadline.time_point());
      }
      if (now >= end) break;
    }
  }
  spinner_count_.fetch_sub(1, std::memory_order_relaxed);
  if (!is_latency) {
    budget_us_.store(
        done ? std::min(budget_us * 2, kLargestSpinUs) : std::max(budget_us / 2, kSmallestSpinUs),
        std::memory_order_relaxed);
  }
  return done;
}

}  // namespace tendon::v0::detail
