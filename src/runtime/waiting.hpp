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

/// What threads that make progress do besides taking in what has come: timers, ticks, callbacks.
class Chores {
 public:
  enum class Pace : std::uint8_t {
    caller_waits,  ///< no time for what takes long, as touching memory does
    unhurried,     ///< the service thread, or a program that makes progress itself
  };
  virtual ~Chores() = default;
  [[nodiscard]] virtual Deadline next_chore(Pace pace) const = 0;
  virtual void run_chores(Pace pace) = 0;
  /// For the service thread alone.
  [[nodiscard]] virtual bool has_callbacks() const noexcept = 0;
  virtual bool run_callbacks() = 0;
};

/// How threads of a Context wait, and make progress for it while they do: the rules of
/// docs/threads.md, "Who makes progress". A thread tries, spins, then leads or follows.
///
/// Owns:    nothing that it takes in; see Leadership, Sleepers, Spinner for the parts.
/// Threads: thread-safe. Attempts, works, handlers and chores are called without its locks.
/// Errors:  none; a wait is over when the Context became unusable.
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
  /// between. `attempt` takes in from `links` itself (Receiving); it is called without locks and
  /// must return true when the Context became unusable.
  template <class F>
  bool wait(WaitedLinks links, Deadline deadline, F attempt, Moves moves) {
    note_activity();
    if (attempt()) return true;
    if (deadline.is_poll()) return false;
    return wait_slowly(links, deadline, Attempt(attempt), moves);
  }
  /// Spins as wait() does, for what others write to memory: `attempt` looks there itself. False:
  /// wait() is next, with a Work whose has_input() sees the same.
  template <class F>
  bool spin_for_flags(Deadline deadline, F attempt, Moves moves) {
    return !deadline.is_poll() && spinner_.spin({}, deadline, Attempt(attempt), moves);
  }
  void note_activity() noexcept { activity_.note(); }
  [[nodiscard]] unsigned cpu_count() const noexcept { return spinner_.cpu_count(); }

  /// Messages were handed over by this thread, which holds no locks: others may wait for them.
  void note_moved() {
    if (waiter_count_.load(std::memory_order_relaxed) > waiting_here_) wake_others();
  }
  void wake_others() { leadership_.wake_others(); }
  void wake_service() { leadership_.wake_service(); }
  void wake_all() { leadership_.wake_all(); }
  /// Work was added: a thread that goes to sleep later finds it after it counted itself.
  void wake_sleeper() {
    if (sleepers_.any()) around_.loop.ring();
  }
  [[nodiscard]] Sleepers& sleepers() noexcept { return sleepers_; }

  /// The service thread, until Life::stopping().
  void serve();
  /// All there is to do now, for a program that makes progress itself. Whether anything moved.
  bool make_progress();
  /// Such a program is about to sleep on the epoll. False: something came meanwhile.
  [[nodiscard]] bool arm();
  /// Takes in what every link has.
  bool poll_links();

 private:
  bool wait_slowly(WaitedLinks links, Deadline deadline, Attempt attempt, Moves moves);
  enum class Sleeper : std::uint8_t { caller, service };
  /// Announces sleep, looks again, sleeps in the epoll, takes in. Whether anything moved.
  bool sleep_in_epoll(Deadline deadline, Sleeper who);
  /// Takes in what is there, without sleep.
  bool look_around(Chores::Pace pace);
  bool take_in(const LinkList& links, Chores::Pace pace);
  static bool poll_links(const LinkList& links);
  static bool has_input(const LinkList& links);

  const Around around_;
  const Chores::Pace pace_;  // of a caller that waits
  Activity activity_;
  Spinner spinner_;
  Sleepers sleepers_;
  Leadership leadership_;
  std::atomic<std::uint32_t> waiter_count_{0};
  static thread_local constinit std::uint32_t waiting_here_;  // waiters of this thread itself
};

}  // namespace tendon::v0::detail
