// SPDX-License-Identifier: Apache-2.0
#include "runtime/waiting.hpp"

#include <algorithm>
#include <chrono>

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

int to_epoll_timeout(Deadline deadline) {
  if (deadline.is_never()) return -1;
  // Rounds up, because waking early would only cause another round.
  const auto left = std::chrono::ceil<milliseconds>(deadline.remaining()).count();
  return static_cast<int>(std::min<std::int64_t>(left, 3'600'000));
}

}  // namespace

thread_local constinit std::uint32_t Waiting::waiting_here_ = 0;

Waiting::Waiting(const Around& around, const ContextOptions& options)
    : around_(around),
      pace_(options.progress == Progress::manual ? Chores::Pace::unhurried
                                                 : Chores::Pace::caller_waits),
      spinner_(options.wait_policy, activity_),
      leadership_(around.loop, around.life) {}

bool Waiting::wait_slowly(WaitedLinks links, Deadline deadline, Attempt attempt, Moves moves) {
  waiter_count_.fetch_add(1);
  ++waiting_here_;
  bool leading = false;
  std::uint64_t moved = moved_so_far(moves);
  bool done = attempt();
  if (!done && !links.empty()) done = spinner_.spin(links, deadline, attempt, nullptr);
  SpinBudget* const budget = done ? nullptr : spinner_.budget();
  const auto slept_from = budget == nullptr ? Clock::time_point() : Clock::now();
  while (!done) {
    const std::uint64_t seen = leadership_.progress_count();
    done = attempt();
    if (done || deadline.has_passed()) break;
    if (moved_so_far(moves) != moved) {
      done = spinner_.spin({}, deadline, attempt, moves);
      moved = moved_so_far(moves);
      continue;
    }
    if (!leading) leading = leadership_.enter(seen, deadline);
    if (!leading || leadership_.progress_count() != seen || around_.life.unusable()) continue;
    leadership_.pass_ring_on(deadline);
    leadership_.note_round();
    if (sleep_in_epoll(deadline, Sleeper::caller)) leadership_.wake_followers();
  }
  if (leading) leadership_.leave();
  if (budget != nullptr && done) budget->slept(Clock::now() - slept_from);
  if (budget != nullptr && !done) budget->missed();
  --waiting_here_;
  waiter_count_.fetch_sub(1);
  return done;
}

bool Waiting::sleep_in_epoll(Deadline deadline, Sleeper who) {
  const bool is_service = who == Sleeper::service;
  const Chores::Pace pace = is_service ? Chores::Pace::unhurried : pace_;
  const auto links = around_.links.all();
  if (is_service) leadership_.service_enters_epoll();
  sleepers_.announce(*links);
  const bool look_now = around_.life.closed() || has_input(*links) || around_.works.has_input() ||
                        (is_service && around_.chores.has_callbacks());
  const EventLoop::Events events = around_.loop.dispatch(
      look_now ? 0 : to_epoll_timeout(earlier(deadline, around_.chores.next_chore(pace))));
  if (is_service)
    leadership_.service_leaves_epoll();
  else if (events.rung)
    leadership_.note_ring_taken();
  sleepers_.retract(*links);
  const bool moved = take_in(*links, pace);
  return events.any || moved;
}

bool Waiting::look_around(Chores::Pace pace) {
  const auto links = around_.links.all();
  const EventLoop::Events events = around_.loop.dispatch(0);
  const bool moved = take_in(*links, pace);
  return events.any || moved;
}

bool Waiting::take_in(const LinkList& links, Chores::Pace pace) {
  bool moved = poll_links(links);
  moved = around_.works.run() || moved;
  around_.chores.run_chores(pace);
  return moved;
}

bool Waiting::poll_links() { return poll_links(*around_.links.all()); }

bool Waiting::poll_links(const LinkList& links) {
  bool moved = false;
  for (const auto& link : links) {
    if (link->ended() || !link->has_input()) continue;
    const Lock receiving(link->receive_mutex());
    moved = link->poll() || moved;
  }
  return moved;
}

bool Waiting::has_input(const LinkList& links) {
  return std::ranges::any_of(links,
                             [](const auto& link) { return !link->ended() && link->has_input(); });
}

void Waiting::serve() {
  constexpr auto kPace = Chores::Pace::unhurried;
  const auto wanted = [this] { return around_.life.stopping() || around_.chores.has_callbacks(); };
  std::uint64_t seen = activity_.count();
  milliseconds park = Leadership::kShortestPark;
  while (!around_.life.stopping()) {
    const std::uint64_t count = activity_.count();
    const bool callers_serve = count != seen || leadership_.caller_leads();
    seen = count;
    bool moved = false;
    if (callers_serve) {
      leadership_.park(park, wanted);
      park = std::min(park * 2, milliseconds(Leadership::kLongestPark));
      moved = look_around(kPace);
    } else {
      park = Leadership::kShortestPark;
      moved = sleep_in_epoll(Deadline::never(), Sleeper::service);
    }
    if (moved) leadership_.wake_others();
    around_.chores.run_callbacks();
  }
}

bool Waiting::make_progress() {
  sleepers_.disarm(*around_.links.all());
  return look_around(Chores::Pace::unhurried);
}

bool Waiting::arm() {
  const auto links = around_.links.all();
  sleepers_.arm(*links);
  return !around_.chores.has_callbacks() && !has_input(*links) && !around_.works.has_input();
}

}  // namespace tendon::v0::detail
