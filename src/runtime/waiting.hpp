// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <tendon/core/deadline.hpp>
#include <tendon/runtime/context.hpp>

#include "runtime/attempt.hpp"
#include "runtime/event_loop.hpp"
#include "runtime/leadership.hpp"
#include "runtime/life.hpp"
#include "runtime/link_table.hpp"
#include "runtime/sleepers.hpp"
#include "runtime/spinner.hpp"
#include "runtime/work_list.hpp"

namespace tendon::v0::detail {

/// The work besides receiving that threads do when they make progress: timers, ticks, callbacks.
class Chores {
 public:
  enum class Pace : std::uint8_t {
    caller_waits,  ///< no time for slow work, such as touching memory
    unhurried,     ///< the service thread, or a program that makes progress itself
  };
  virtual ~Chores() = default;
  [[nodiscard]] virtual Deadline next_chore(Pace pace) const = 0;
  virtual void run_chores(Pace pace) = 0;
  /// For the service thread only.
  [[nodiscard]] virtual bool has_callbacks() const noexcept = 0;
  virtual bool run_callbacks() = 0;
};

/// How threads of a Context wait, and make progress for it meanwhile: the rules of docs/threads.md,
/// "Who makes progress". A thread tries, spins, then leads or follows.
///
/// Owns:    its parts: see Leadership, Sleepers, Spinner. It shares the rest with the Context.
/// Threads: thread-safe. Attempts, works, handlers and chores are called without its locks.
/// Errors:  none; a wait ends when the Context becomes unusable.
/// Blocks:  wait() up to its deadline.
/// Cost:    an attempt that succeeds at once costs one store.
class Waiting {
 public:
  struct Around {
    EventLoop& loop;
    const LinkTable& links;
    WorkList& works;
    const Life& life;
    Chores& chores;
  };
  Waiting(const Around& around, const ContextOptions& options);

  /// Calls `attempt` until it returns true or the deadline passes; makes progress and sleeps in
  /// between. `attempt` receives from `links` itself (Receiving). It is called without locks, and
  /// must return true when the Context becomes unusable.
  template <class F>
  bool wait(WaitedLinks links, Deadline deadline, F attempt, Moves moves) {
    note_activity();
    if (attempt()) return true;
    if (deadline.is_poll()) return false;
    return wait_slowly(links, deadline, Attempt(attempt), moves);
  }
  /// Spins like wait(), for values that others write to memory, which `attempt` reads itself.
  /// False: call wait() next, with a Work whose has_input() sees the same values.
  template <class F>
  bool spin_for_flags(Deadline deadline, F attempt, Moves moves) {
    return !deadline.is_poll() && spinner_.spin({}, deadline, Attempt(attempt), moves);
  }
  void note_activity() noexcept { activity_.note(); }
  [[nodiscard]] unsigned cpu_count() const noexcept { return spinner_.cpu_count(); }

  /// This thread, which holds no locks, has delivered messages that others may wait for.
  void note_moved() {
    if (waiter_count_.load(std::memory_order_relaxed) > waiting_here_) wake_others();
  }
  void wake_others() { leadership_.wake_others(); }
  void wake_service() { leadership_.wake_service(); }
  void wake_all() { leadership_.wake_all(); }
  /// Work was added; a thread that sleeps later finds it after it has counted itself.
  void wake_sleeper() {
    if (sleepers_.any()) around_.loop.ring();
  }
  [[nodiscard]] Sleepers& sleepers() noexcept { return sleepers_; }

  /// Runs the service thread, until Life::stopping().
  void serve();
  /// Does all current work, for a program that makes progress itself. Returns whether anything
  /// moved.
  bool make_progress();
  /// Called before such a program sleeps on the epoll. False: something has arrived meanwhile.
  [[nodiscard]] bool arm();
  /// Receives from every link.
  bool poll_links();

 private:
  bool wait_slowly(WaitedLinks links, Deadline deadline, Attempt attempt, Moves moves);
  enum class Sleeper : std::uint8_t { caller, service };
  /// Announces sleep, looks again, sleeps in the epoll, receives. Returns whether anything moved.
  bool sleep_in_epoll(Deadline deadline, Sleeper who);
  /// Receives whatever has arrived, without sleeping.
  bool look_around(Chores::Pace pace);
  bool take_in(const LinkList& links, Chores::Pace pace);
  static bool poll_links(const LinkList& links);
  static bool has_input(const LinkList& links);

  const Around around_;
  const Chores::Pace pace_;  // of a waiting caller
  Activity activity_;
  Spinner spinner_;
  Sleepers sleepers_;
  Leadership leadership_;
  std::atomic<std::uint32_t> waiter_count_{0};
  static thread_local constinit std::uint32_t waiting_here_;  // number of waits of this thread
                                                              // itself
};

}  // namespace tendon::v0::detail
