// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/member_event.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/observe/flight_recorder.hpp>
#include <tendon/runtime/context.hpp>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/fd.hpp"
#include "memory/slot_pool.hpp"
#include "runtime/engine_roles.hpp"
#include "runtime/link_entry.hpp"
#include "runtime/tickets.hpp"
#include "runtime/user_event.hpp"
#include "runtime/work_list.hpp"
#include "session/hello.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The state of a Context: identity, links, and the rules of docs/threads.md, "Who makes progress".
/// A thread that waits leads: it polls its link, spins, then sleeps in the one epoll; others wait
/// behind it; the service thread leads when no caller does.
///
/// Owns:    epoll, doorbell, pool, links, the service thread.
/// Threads: thread-safe. Lock order: a link's receive lock before every lock in here.
class Engine final : public Reactor,
                     public LinkObserver,
                     public std::enable_shared_from_this<Engine> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<Engine>> create(ContextOptions options);
  [[nodiscard]] static const std::shared_ptr<Engine>& of(const Context& context) {
    return context.engine_;
  }
  explicit Engine(ContextOptions options);
  ~Engine() override;

  [[nodiscard]] const ContextOptions& options() const noexcept { return options_; }
  [[nodiscard]] ContextId id() const noexcept { return identity_.context; }
  [[nodiscard]] const PeerIdentity& identity() const noexcept { return identity_; }
  [[nodiscard]] const std::shared_ptr<SlotPool>& pool() const noexcept { return pool_; }
  [[nodiscard]] int doorbell_fd() const noexcept { return doorbell_.get(); }
  [[nodiscard]] FlightRecorder& recorder() noexcept { return recorder_; }
  /// The hello of this Context, for either role.
  [[nodiscard]] HelloMessage hello(Profile profile) const;

  /// context_closed or forked, for every call of a handle.
  [[nodiscard]] Result<void> usable(std::string_view where) const {
    return unusable() ? Result<void>(why_unusable(where)) : Result<void>();
  }
  [[nodiscard]] bool unusable() const noexcept {
    return closed_.load(std::memory_order_acquire) || forked();
  }
  /// This is a forked child. What ends a handle's object must ask before it takes a lock: a thread
  /// that exists in the parent alone may hold it.
  [[nodiscard]] bool forked() const noexcept { return epoch_ != fork_epoch(); }

  // Waiting
  /// Calls `attempt` until it answers true or the deadline passes; makes progress and sleeps in
  /// between. `attempt` polls `link` itself (poll_link); it is called without locks and must answer
  /// true when the engine became unusable(). `link` may be null.
  template <class F>
  bool wait(Link* link, Deadline deadline, F attempt, Moves moves = nullptr) {
    note_activity();
    if (attempt()) return true;
    if (deadline.is_poll()) return false;
    return wait_slowly(link, deadline, Attempt(attempt), moves);
  }
  /// Spins as a waiting call does, for what others write to memory: `attempt` looks there itself.
  /// False: wait() is next, with a Work whose has_input() sees the same.
  template <class F>
  bool spin_for_flags(Deadline deadline, F attempt, Moves moves) {
    return !deadline.is_poll() && spin(nullptr, deadline, Attempt(attempt), moves);
  }
  /// Polls one link under its receive lock, and wakes whoever else may care.
  bool poll_link(Link& link) TENDON_EXCLUDES(link.receive_mutex());
  /// Takes in what every link has, so that a decision sees it.
  void poll_every_link();
  /// Tells the other waiting threads that something moved.
  void wake_others() TENDON_EXCLUDES(lead_mutex_);
  /// Must follow every rise of a link's `waiting_for_...`, before what is waited for is looked at
  /// again: whoever sleeps already has not asked the peer to ring.
  void announce_again(Link& link);
  /// Must follow every hand-over of received messages by a thread that holds no locks.
  void note_moved() {
    if (waiter_count_.load(std::memory_order_relaxed) > waiting_here_) wake_others();
  }
  void note_activity() noexcept {
    // Only "has it changed" matters, so a lost increment does no harm.
    activity_.store(activity_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // Work, time, callbacks
  void add_work(std::shared_ptr<Work> work);
  [[nodiscard]] std::uint64_t add_timed(Deadline when, std::weak_ptr<Timed> timed);
  void remove_timed(std::uint64_t id);
  /// Runs later on the service thread or inside progress(), under no lock.
  void schedule(std::function<void()> callback) TENDON_EXCLUDES(work_mutex_, lead_mutex_);
  /// Something can be collected: fd() becomes readable.
  void note_completed() { user_event_.signal(); }
  void publish(MemberEvent event);
  void on_member(std::function<void(const MemberEvent&)> callback);
  /// Touches the slots a stream will use next, off the hot path.
  void prefault_soon(std::function<void()> prefault);

  // Links
  using Role = LinkRole;
  /// Registers and starts a link whose handshake proved `profile`; an older one of the same pair
  /// and role is ended, where may_add_link().
  [[nodiscard]] Result<void> add_link(const std::shared_ptr<Link>& link, Role role,
                                      Profile profile);
  /// permission_denied if it would end a link that is better proved, or one of another process.
  [[nodiscard]] Result<void> may_add_link(const PeerIdentity& peer, Role role,
                                          Profile profile) const;
  /// Room for a link that `peer` makes; at the limit, an unproved one without pipes gives way.
  [[nodiscard]] Result<void> make_room(const ContextId& peer);
  /// A peer was heard that still makes its link: it has kFirstPipeTimeout from now.
  void renew(const Link& link);
  /// The live link of this pair and role, or null; permission_denied if a pipe that requires
  /// `profile` must not run on it.
  [[nodiscard]] Result<std::shared_ptr<Link>> link_for(const ContextId& peer, Role role,
                                                       Profile profile) const;
  /// The live link to a peer that this side made by connecting.
  [[nodiscard]] std::shared_ptr<Link> connected_link(const ContextId& peer) const;
  /// True for the first caller: it makes the link. Others wait for connected_link().
  [[nodiscard]] bool begin_connecting(const ContextId& peer);
  void end_connecting(const ContextId& peer);
  [[nodiscard]] std::vector<std::shared_ptr<Link>> links() const;

  [[nodiscard]] Tickets& tickets() noexcept { return tickets_; }
  /// Told when the Context closes.
  void add_handler(std::weak_ptr<OpenHandler> handler);

  // Reactor
  Result<void> watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) override;
  void change(int fd, std::uint32_t events) override;
  void forget(int fd) override;
  // LinkObserver
  void on_open(Link& link, const Descriptor& descriptor, Bytes ticket) override;
  void on_ended(Link& link, const Error* error) override;

  // Context
  Result<void> close(Deadline deadline);
  bool progress();
  [[nodiscard]] int user_fd() const noexcept;
  bool arm();
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::vector<PeerIdentity> members() const;

 private:
  using LinkList = std::vector<std::shared_ptr<Link>>;

  [[nodiscard]] Error why_unusable(std::string_view where) const;
  [[nodiscard]] Result<void> open();
  bool wait_slowly(Link* link, Deadline deadline, Attempt attempt, Moves moves);
  bool spin(const Link* link, Deadline deadline, Attempt attempt, Moves moves = nullptr);
  void sleep_once(Deadline deadline, std::uint64_t seen_progress, bool& leading);
  void stop_leading();
  /// One round: announce sleep, look again, epoll, take in. Returns whether anything moved.
  bool lead_once(Deadline deadline);
  void retract_sleep(const LinkList& links);
  bool dispatch_events(int timeout_ms);
  bool poll_links(const LinkList& links);
  void run_timers();
  bool run_callbacks();
  [[nodiscard]] Deadline next_timer() const;
  void kick() noexcept;
  void serve();
  [[nodiscard]] std::shared_ptr<const LinkList> snapshot() const;
  void refresh_snapshot() TENDON_REQUIRES(links_mutex_);
  void end_if_unused(const std::shared_ptr<Link>& link);
  void end_idle(const std::shared_ptr<Link>& link, std::string_view why);
  /// The peers for which something is left to send, and how many messages have not begun to leave.
  [[nodiscard]] std::map<std::string, std::uint64_t> unsent();

  const ContextOptions options_;
  const std::uint32_t epoch_;
  const unsigned cpu_count_;
  PeerIdentity identity_;
  Token boot_id_{};
  FlightRecorder recorder_;
  OwnedFd epoll_;
  OwnedFd doorbell_;      // peers and other threads ring it
  UserEvent user_event_;  // with a service thread
  std::shared_ptr<SlotPool> pool_;

  std::atomic<bool> closed_{false};
  std::atomic<bool> closing_{false};
  mutable Mutex watch_mutex_;
  std::unordered_map<std::uint64_t, Watched> watched_ TENDON_GUARDED_BY(watch_mutex_);
  std::unordered_map<int, std::uint64_t> watch_id_of_fd_ TENDON_GUARDED_BY(watch_mutex_);
  std::uint64_t next_watch_id_ TENDON_GUARDED_BY(watch_mutex_) = 1;

  mutable Mutex links_mutex_;
  std::vector<LinkEntry> entries_ TENDON_GUARDED_BY(links_mutex_);
  // Ended, but slots are still in quarantine.
  std::vector<std::shared_ptr<Link>> retired_ TENDON_GUARDED_BY(links_mutex_);
  std::shared_ptr<const LinkList> snapshot_ TENDON_GUARDED_BY(links_mutex_) =
      std::make_shared<LinkList>();
  std::vector<ContextId> connecting_ TENDON_GUARDED_BY(links_mutex_);
  std::vector<std::weak_ptr<OpenHandler>> handlers_ TENDON_GUARDED_BY(links_mutex_);
  std::chrono::steady_clock::time_point next_tick_ TENDON_GUARDED_BY(links_mutex_);

  Tickets tickets_;
  WorkList works_;
  mutable Mutex work_mutex_;
  std::map<std::uint64_t, TimedEntry> timed_ TENDON_GUARDED_BY(work_mutex_);
  std::uint64_t next_timed_id_ TENDON_GUARDED_BY(work_mutex_) = 1;
  std::vector<std::function<void()>> ready_ TENDON_GUARDED_BY(work_mutex_);
  std::vector<std::function<void()>> prefaults_ TENDON_GUARDED_BY(work_mutex_);
  std::vector<std::function<void(const MemberEvent&)>> member_callbacks_
      TENDON_GUARDED_BY(work_mutex_);
  std::atomic<bool> anything_ready_{false};

  // Who leads.
  Mutex lead_mutex_;
  CondVar follower_wake_;
  CondVar service_wake_;
  std::atomic<bool> caller_leads_{false};  // set under the lock; without it, a hint
  std::uint32_t follower_count_ TENDON_GUARDED_BY(lead_mutex_) = 0;
  bool service_parked_long_ TENDON_GUARDED_BY(lead_mutex_) = false;
  std::atomic<bool> service_in_epoll_{false};
  std::atomic<bool> ring_taken_{false};  // by the leading caller, while it leads
  std::atomic<std::uint64_t> progress_count_{0};
  std::atomic<std::uint32_t> waiter_count_{0};
  static thread_local constinit std::uint32_t waiting_here_;  // waiters of this thread itself
  std::atomic<std::uint64_t> activity_{0};
  std::atomic<std::uint32_t> spinner_count_{0};
  std::atomic<std::uint32_t> spin_budget_us_;
  std::atomic<std::uint64_t> lead_rounds_{0};

  Mutex sleep_mutex_;
  std::atomic<std::uint32_t> sleeper_count_{0};  // changed under the lock
  std::thread service_;
  std::atomic<bool> stopping_{false};
};

}  // namespace tendon::v0::detail
