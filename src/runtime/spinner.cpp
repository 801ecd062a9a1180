// SPDX-License-Identifier: Apache-2.0
#include "runtime/spinner.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "core/pause.hpp"
#include "core/stage_clock.hpp"
#include "runtime/settings.hpp"
#include "runtime/wake_up_cost.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr microseconds kLatencySpin{1000};
// Not longer, because on shared CPUs a sleeping thread helps the others most.
constexpr microseconds kCrowdSpin{200};
constexpr unsigned kNever = 0;

/// The parameters of one spin.
struct Manner {
  microseconds budget;
  unsigned rounds_alone;  ///< before the first yield
  unsigned yield_every;   ///< rounds; kNever
};

}  // namespace

Spinner::Spinner(WaitPolicy policy, Activity& activity)
    : policy_(policy),
      // A user that asks for latency has a core for each side; affinity to one core does not
      // restrict the peer's.
      cpu_count_(policy == WaitPolicy::latency ? quota_cpu_count() : effective_cpu_count()),
      activity_(activity),
      budget_(policy == WaitPolicy::balanced ? wake_up_cost() : microseconds(0)) {}

bool Spinner::spin(WaitedLinks links, Deadline deadline, Attempt attempt, Moves moves) {
  if (policy_ == WaitPolicy::blocking) return false;
  const bool is_crowded =
      moves != nullptr && moves->crowd.load(std::memory_order_relaxed) == Crowd::shares_cpus;
  if (cpu_count_ < 2 && !is_crowded) return false;
  const bool learns = policy_ == WaitPolicy::balanced && !is_crowded;
  if (learns && budget_.rests()) return false;
  // More spinners than cores would only keep each other's peers from running.
  if (spinner_count_.fetch_add(1, std::memory_order_relaxed) >= cpu_count_) {
    spinner_count_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  // The awaited thread may need this CPU, so yield after a few rounds for events that are close.
  const Manner manner = is_crowded                       ? Manner{kCrowdSpin, 2, 1}
                        : policy_ == WaitPolicy::latency ? Manner{kLatencySpin, 0, kNever}
                        // Members of a group may wait for a third member; the ends of a pipe do
                        // not.
                        : budget_.is_long() ? Manner{budget_.now(), links.empty() ? 8u : 48u, 8}
                                            : Manner{budget_.now(), 0, kNever};
  // Only a system call detects input of a link over sockets, so each round costs more.
  const bool show_input = !links.empty() && std::ranges::all_of(links, [](const Link* link) {
    return link->traits().shows_input;
  });
  const auto may_succeed = [&] {
    return !show_input || std::ranges::any_of(links, [](const Link* link) {
      return link->has_input() || link->ended();
    });
  };
  const unsigned clock_mask = show_input || links.empty() ? 63 : 7;
  auto looked = Clock::now();
  auto end = std::min(looked + manner.budget, deadline.time_point());
  bool lost_cpu = false;
  std::uint64_t moved = moved_so_far(moves);
  bool done = false;
  for (unsigned round = 1; !done; ++round) {
    if (may_succeed()) {
      TENDON_STAGE(seen);
      done = attempt();
    }
    if (done) break;
    const bool yields = manner.yield_every != kNever && round > manner.rounds_alone &&
                        round % manner.yield_every == 0;
    if (yields)
      sched_yield();
    else
      pause_briefly();
    if (yields || (round & clock_mask) == 0) {
      activity_.note();
      const auto now = Clock::now();
      lost_cpu = lost_cpu || now - looked >= SpinBudget::kLost;
      looked = now;
      if (moved_so_far(moves) != moved) {
        moved = moved_so_far(moves);
        end = std::min(now + manner.budget, deadline.time_point());
      }
      if (now >= end) break;
    }
  }
  spinner_count_.fetch_sub(1, std::memory_order_relaxed);
  if (!learns) return done;
  if (lost_cpu)
    budget_.lost_cpu();
  else if (done)
    budget_.spun();
  return done;
}

}  // namespace tendon::v0::detail
