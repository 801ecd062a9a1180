// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/member_event.hpp>
#include <tendon/core/result.hpp>
#include <tendon/observe/flight_recorder.hpp>
#include <tendon/observe/log.hpp>
#include <tendon/runtime/context.hpp>
#include <vector>

#include "core/thread.hpp"
#include "memory/slot_pool.hpp"
#include "runtime/callbacks.hpp"
#include "runtime/context_clients.hpp"
#include "runtime/context_memory.hpp"
#include "runtime/event_callbacks.hpp"
#include "runtime/event_loop.hpp"
#include "runtime/life.hpp"
#include "runtime/link_table.hpp"
#include "runtime/open_handlers.hpp"
#include "runtime/opening.hpp"
#include "runtime/parts.hpp"
#include "runtime/publishing.hpp"
#include "runtime/purposes.hpp"
#include "runtime/tickets.hpp"
#include "runtime/timers.hpp"
#include "runtime/user_event.hpp"
#include "runtime/waiting.hpp"
#include "runtime/work_list.hpp"
#include "session/hello.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The state of a Context: its identity, and the parts that do its work.
///
/// Owns:    the parts, the pool, the service thread.
/// Threads: thread-safe. Lock order: a link's receive lock before every lock of a part; no part
///          calls another under its own lock, except Publishing, Sleepers and Leadership, which
///          name their callees.
class ContextCore final : public LinkObserver,
                          public std::enable_shared_from_this<ContextCore>,
                          private Chores {
 public:
  [[nodiscard]] static Result<std::shared_ptr<ContextCore>> create(ContextOptions options);
  [[nodiscard]] static const std::shared_ptr<ContextCore>& of(const Context& context) {
    return context.core_;
  }
  explicit ContextCore(ContextOptions options);
  ~ContextCore() override;

  [[nodiscard]] const ContextOptions& options() const noexcept { return options_; }
  [[nodiscard]] ContextId id() const noexcept { return identity_.context; }
  [[nodiscard]] const PeerIdentity& identity() const noexcept { return identity_; }
  /// The Context's name in lines of the log: LogLine::context.
  [[nodiscard]] std::string log_name() const;
  /// Logs a line about this Context; see tendon::log().
  void log(LogLevel level, std::string_view where, std::string_view text) const noexcept;
  [[nodiscard]] const ContextMemory& memory() const noexcept { return memory_; }
  [[nodiscard]] FlightRecorder& recorder() noexcept { return recorder_; }
  [[nodiscard]] EventLoop& loop() noexcept { return loop_; }
  [[nodiscard]] Waiting& waiting() noexcept { return waiting_; }
  [[nodiscard]] LinkTable& links() noexcept { return links_; }
  [[nodiscard]] Tickets& tickets() noexcept { return tickets_; }
  [[nodiscard]] Purposes& purposes() noexcept { return purposes_; }
  [[nodiscard]] Publishing& publishing() noexcept { return publishing_; }
  /// The hello of this Context, for either role.
  [[nodiscard]] HelloMessage hello(Profile profile) const;

  /// Returns context_closed or forked; every call of a handle checks it.
  [[nodiscard]] Result<void> usable(std::string_view where) const {
    return unusable() ? Result<void>(why_unusable(where)) : Result<void>();
  }
  [[nodiscard]] bool unusable() const noexcept { return life_.unusable(); }
  /// True in a forked child. The end of a handle's object must check it before it takes a lock,
  /// because a thread that exists only in the parent may hold that lock.
  [[nodiscard]] bool forked() const noexcept { return life_.forked(); }

  // Waiting
  /// See Waiting::wait(). `link` may be null; several links are waited for in the same way.
  template <class F>
  bool wait(Link* link, Deadline deadline, F attempt, Moves moves = nullptr) {
    return wait(link == nullptr ? WaitedLinks() : WaitedLinks(&link, 1), deadline,
                std::move(attempt), moves);
  }
  template <class F>
  bool wait(WaitedLinks links, Deadline deadline, F attempt, Moves moves = nullptr) {
    return waiting_.wait(links, deadline, std::move(attempt), moves);
  }
  /// See Waiting.
  template <class F>
  bool spin_for_flags(Deadline deadline, F attempt, Moves moves) {
    return waiting_.spin_for_flags(deadline, std::move(attempt), moves);
  }
  void note_activity() noexcept { waiting_.note_activity(); }
  /// Makes every waiting thread look again, because something moved.
  void wake_others() { waiting_.wake_others(); }
  /// Receives from one link under its receive lock, and wakes other threads that may care.
  bool poll_link(Link& link) TENDON_EXCLUDES(link.receive_mutex());
  /// Receives from every link, so that a decision sees all that has arrived.
  void poll_every_link();

  // Work, time, callbacks
  void add_work(std::shared_ptr<Work> work);
  /// Makes all threads look again, because a Work or a waiting thread may have input that no
  /// descriptor signals. This thread must hold no lock that they take.
  void wake_for_work();
  [[nodiscard]] std::uint64_t add_timed(Deadline when, std::weak_ptr<Timed> timed);
  void remove_timed(std::uint64_t id) { timers_.remove(id); }
  /// Runs `callback` later, under no lock: on the service thread or inside progress(), and at the
  /// end inside close().
  void schedule(std::function<void()> callback);
  [[nodiscard]] std::size_t waiting_callbacks() const noexcept { return callbacks_.count(); }
  /// Makes fd() readable, because a result can be collected.
  void note_completed() { user_event_.signal(); }
  /// `level` is that of the log line: an error that a call also returns is no warning.
  void publish(MemberEvent event, LogLevel level);
  void on_member(std::function<void(const MemberEvent&)> callback);
  /// Touches the slots a stream will use next, off the hot path.
  void prefault_soon(std::function<void()> prefault);

  // Links
  /// Registers and starts a link whose handshake showed `proofs`, with a peer whose hello named
  /// `features`. It ends an older link that this one replaces, if LinkTable::may_add() allows it.
  [[nodiscard]] Result<void> add_link(const std::shared_ptr<Link>& link, LinkRole role,
                                      Proofs proofs, Features features, const LinkOrigin& origin);
  /// Makes room for a link from `peer`; at a limit, an unproved link without pipes is ended.
  [[nodiscard]] Result<void> make_room(const PeerIdentity& peer, const LinkOrigin& origin);
  /// Opens a pipe on an existing link: `make` takes its number and returns its sink. Returns once
  /// the `open` is sent; a refusal by the peer reaches the sink. Errors: limit_exceeded,
  /// not_supported where only the peer opens pipes, and that of a link that has ended.
  template <class Make>
  [[nodiscard]] Result<void> open_pipe(Link& link, const Opening& opening, Make make) {
    std::uint32_t pipe = 0;
    {
      const Lock receiving(link.receive_mutex());
      TENDON_CHECK(may_open_pipe(link));
      pipe = link.next_pipe_id();
      link.attach(pipe, make(pipe));
    }
    say_open(link, pipe, opening);
    return {};
  }
  /// Asks the peer for its time, and again while the link lives: see PeerClock. LinkTable::clock_of
  /// has the answer. Does nothing where the peer does not know this message.
  void ask_clock(Link& link);
  /// The parts that upper layers keep for this Context.
  [[nodiscard]] ContextParts& parts() noexcept { return parts_; }
  /// Adds a handler that is told when the Context closes.
  void add_handler(std::weak_ptr<OpenHandler> handler) { handlers_.add(std::move(handler)); }

  // LinkObserver
  void on_open(Link& link, const Descriptor& descriptor, Bytes header) override;
  void on_word(Link& link, const Descriptor& descriptor) override;
  void on_ended(Link& link, const Error* error) override;

  // Context
  Result<void> close(Deadline deadline);
  bool progress();
  [[nodiscard]] int user_fd() const noexcept;
  bool arm();
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::vector<PeerIdentity> members() const;

 private:
  [[nodiscard]] TENDON_API Error why_unusable(std::string_view where) const;
  [[nodiscard]] Result<void> open();
  void serve();
  // Chores
  [[nodiscard]] Deadline next_chore(Pace pace) const override;
  void run_chores(Pace pace) override;
  [[nodiscard]] bool has_callbacks() const noexcept override;
  bool run_callbacks() override { return callbacks_.run(*this); }
  [[nodiscard]] Result<void> may_open_pipe(Link& link) TENDON_REQUIRES(link.receive_mutex());
  void say_open(Link& link, std::uint32_t pipe, const Opening& opening);
  [[nodiscard]] Result<Entrance> entrance_of(const Link& link, Purpose purpose, Bytes header) const;
  void tick(const LinkEntry& entry, LinkTable::Clock::time_point now);
  [[nodiscard]] static Retirement::Use use_of(Link& link) TENDON_REQUIRES(link.receive_mutex());
  void retire(Link& link) TENDON_REQUIRES(link.receive_mutex());
  void end_if_unused(const std::shared_ptr<Link>& link);
  void end_idle(const std::shared_ptr<Link>& link, std::string_view why);
  /// The peers with unsent data, and the number of messages that have not begun to leave.
  [[nodiscard]] std::map<ContextId, Unsent> unsent();
  /// Reports unsent messages; returns the names of those peers.
  std::string publish_unsent();
  void run_last_callbacks();
  void end_service();
  void keep_for_now(std::shared_ptr<OpenHandler> handler);

  const ContextOptions options_;
  Life life_;
  PeerIdentity identity_;
  FlightRecorder recorder_;
  EventLoop loop_;
  UserEvent user_event_;  // used only with a service thread
  const ContextMemory memory_;
  LinkTable links_;
  Publishing publishing_;
  OpenHandlers handlers_;
  ContextParts parts_;
  Tickets tickets_;
  Purposes purposes_;
  WorkList works_;
  Timers timers_;
  Callbacks callbacks_;
  Callbacks prefaults_;
  EventCallbacks<MemberEvent> member_callbacks_;
  Waiting waiting_;
  Thread service_;
};

}  // namespace tendon::v0::detail
