// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.hpp"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <tendon/observe/log.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/limits.hpp>

#include "core/pause.hpp"
#include "runtime/settings.hpp"
#include "session/machine.hpp"

namespace tendon::v0::detail {
namespace {

// Whose service thread this is, if anybody's.
thread_local constinit const Engine* served_here = nullptr;

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Between two looks at heartbeats and leases; idle links cost no other wake-up of their own.
constexpr auto kTick = milliseconds(500);
constexpr std::uint32_t kSmallestSpinUs = 4;
constexpr std::uint32_t kLargestSpinUs = 64;
constexpr std::uint32_t kLatencySpinUs = 1000;
// The service thread looks after links that no caller serves this often while callers are busy.
constexpr auto kShortestPark = milliseconds(1);
constexpr auto kLongestPark = milliseconds(4);

bool is_of(const LinkEntry& entry, const ContextId& peer, LinkRole role) {
  return entry.role == role && entry.link->peer().context == peer && !entry.link->ended();
}

Result<void> satisfies(const LinkEntry& entry, Profile profile) {
  if (profile != Profile::local || entry.profile == Profile::local) return {};
  return Error{ErrorCode::permission_denied, "context.profile",
               "the link to " + entry.link->peer_name() + " has profile '" +
                   std::string(to_string(entry.profile)) +
                   "', without a proof of the same host, and the pipe requires profile '" +
                   std::string(to_string(profile)) + "'"};
}

int to_epoll_timeout(Deadline deadline) {
  if (deadline.is_never()) return -1;
  // Rounded up: waking early would only mean another round.
  const auto left = std::chrono::ceil<milliseconds>(deadline.remaining()).count();
  return static_cast<int>(std::min<std::int64_t>(left, 3'600'000));
}

// Of an eventfd.
void drain(int fd) noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
}

}  // namespace

thread_local constinit std::uint32_t Engine::waiting_here_ = 0;

Engine::Engine(ContextOptions options)
    : options_(std::move(options)),
      epoch_(fork_epoch()),
      // Who asks for latency has given each side a core; affinity to one says nothing about the
      // peer's.
      cpu_count_(options_.wait_policy == WaitPolicy::latency ? quota_cpu_count()
                                                             : effective_cpu_count()),
      pool_(std::make_shared<SlotPool>("pool of this context", options_.pool_cap_bytes,
                                       Writers::maker_only)),
      next_tick_(Clock::now() + kTick),
      spin_budget_us_(kSmallestSpinUs) {}

Engine::~Engine() = default;

Result<std::shared_ptr<Engine>> Engine::create(ContextOptions options) {
  TENDON_TRY(resolved, resolve_options(std::move(options)));
  auto engine = std::make_shared<Engine>(std::move(resolved));
  TENDON_CHECK(engine->open());
  return engine;
}

Result<void> Engine::open() {
  TENDON_TRY(id, random_token());
  identity_.context.bytes = id;
  identity_.incarnation =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  identity_.pid = process_id();
  identity_.uid = user_id();
  identity_.host = host_name();
  identity_.name = options_.name;
  boot_id_ = boot_id();
  epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return system_error("context.create", "epoll_create1", errno);
  doorbell_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!doorbell_) return system_error("context.create", "eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, doorbell_.get(), &event) != 0)
    return system_error("context.create", "epoll_ctl", errno);
  if (options_.progress == Progress::manual) return {};
  if (!user_event_.open()) return system_error("context.create", "eventfd", errno);
  try {
    service_ = std::thread([self = shared_from_this()] { self->serve(); });
  } catch (const std::system_error& failure) {
    return system_error("context.create", "starting the service thread", failure.code().value());
  }
  return {};
}

HelloMessage Engine::hello(Profile profile) const {
  HelloMessage message;
  message.kind = HelloKind::hello;
  message.profile = profile;
  message.context_id = identity_.context;
  message.incarnation = identity_.incarnation;
  message.pid = identity_.pid;
  message.uid = identity_.uid;
  message.host = identity_.host;
  message.name = identity_.name;
  message.library_version = kVersion;
  message.boot_id = boot_id_;
  message.progress =
      options_.progress == Progress::manual ? ProgressMode::manual : ProgressMode::service;
  // The path this side insists on, if any.
  if (options_.transport == Transport::shm) message.path = PathKind::shm;
  if (options_.transport == Transport::tcp) message.path = PathKind::tcp;
  message.limits = LinkLimits{.link_cap_bytes = options_.link_cap_bytes,
                              .window_messages = kPipeWindowMessages,
                              .window_bytes = kPipeWindowBytes,
                              .max_leaves = static_cast<std::uint32_t>(kMaxLeaves),
                              .streams = options_.streams};
  return message;
}

Error Engine::why_unusable(std::string_view where) const {
  if (forked()) {
    return Error{ErrorCode::forked, where,
                 "context '" + options_.name + "' belongs to process " +
                     std::to_string(identity_.pid) +
                     "; this is a forked child: create a Context of its own here"};
  }
  return Error{ErrorCode::context_closed, where, "context '" + options_.name + "' was closed"};
}

// Waiting

bool Engine::poll_link(Link& link) {
  bool moved = false;
  {
    const Lock receiving(link.receive_mutex());
    moved = link.poll();
  }
  if (moved) note_moved();
  return moved;
}

void Engine::poll_every_link() {
  const auto list = snapshot();
  if (poll_links(*list)) note_moved();
}

void Engine::wake_others() {
  const Lock lock(lead_mutex_);
  progress_count_.fetch_add(1);
  if (follower_count_ != 0) follower_wake_.notify_all();
  if (caller_leads_) kick();
}

void Engine::announce_again(Link& link) {
  const Lock lock(sleep_mutex_);
  if (sleeper_count_ != 0) link.announce_sleep();
}

bool Engine::wait_slowly(Link* link, Deadline deadline, Attempt attempt, Moves moves) {
  waiter_count_.fetch_add(1);
  ++waiting_here_;
  bool leading = false;
  std::uint64_t moved = moves != nullptr ? moves->load(std::memory_order_relaxed) : 0;
  bool done = attempt();
  if (!done && link != nullptr) done = spin(link, deadline, attempt);
  while (!done) {
    const std::uint64_t seen = progress_count_.load();
    done = attempt();
    if (done || deadline.has_passed()) break;
    if (moves != nullptr && moves->load(std::memory_order_relaxed) != moved) {
      done = spin(nullptr, deadline, attempt, moves);
      moved = moves->load(std::memory_order_relaxed);
      continue;
    }
    sleep_once(deadline, seen, leading);
  }
  if (leading) stop_leading();
  --waiting_here_;
  waiter_count_.fetch_sub(1);
  return done;
}

bool Engine::spin(const Link* link, Deadline deadline, Attempt attempt, Moves moves) {
  if (cpu_count_ < 2 || options_.wait_policy == WaitPolicy::blocking) return false;
  const bool is_latency = options_.wait_policy == WaitPolicy::latency;
  const std::uint32_t budget_us =
      is_latency ? kLatencySpinUs : spin_budget_us_.load(std::memory_order_relaxed);
  // More spinners than cores would only keep each other's peers from running.
  if (spinner_count_.fetch_add(1, std::memory_order_relaxed) >= cpu_count_) {
    spinner_count_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  // Input of a link over sockets shows only to a system call, so each round costs more.
  const bool shows_input = link != nullptr && link->delivers_at_once();
  const unsigned clock_mask = shows_input || link == nullptr ? 63 : 7;
  // Members of a group may be more than CPUs; the two ends of a pipe are not.
  const unsigned rounds_alone = link == nullptr ? 8 : 48;
  const auto budget = microseconds(budget_us);
  auto end = std::min(Clock::now() + budget, deadline.time_point());
  std::uint64_t moved = moves != nullptr ? moves->load(std::memory_order_relaxed) : 0;
  bool done = false;
  for (unsigned round = 1; !done; ++round) {
    if (!shows_input || link->has_input() || link->ended() ||
        closed_.load(std::memory_order_relaxed)) {
      done = attempt();
    }
    if (done) break;
    // Whom this thread waits for may need its CPU. An answer that is nearly there comes before.
    const bool yields = !is_latency && round > rounds_alone && (round & 7) == 0;
    if (yields)
      sched_yield();
    else
      pause_briefly();
    if (yields || (round & clock_mask) == 0) {
      note_activity();
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
    spin_budget_us_.store(
        done ? std::min(budget_us * 2, kLargestSpinUs) : std::max(budget_us / 2, kSmallestSpinUs),
        std::memory_order_relaxed);
  }
  return done;
}

void Engine::sleep_once(Deadline deadline, std::uint64_t seen_progress, bool& leading) {
  if (!leading) {
    const Lock lock(lead_mutex_);
    if (progress_count_.load() != seen_progress || unusable()) return;
    if (caller_leads_) {
      ++follower_count_;
      while (progress_count_.load() == seen_progress && caller_leads_ && !unusable())
        if (!follower_wake_.wait_until(lead_mutex_, deadline)) break;
      --follower_count_;
      return;
    }
    caller_leads_ = true;
    leading = true;
  }
  if (progress_count_.load() != seen_progress || unusable()) return;
  lead_once(deadline);
}

void Engine::stop_leading() {
  const Lock lock(lead_mutex_);
  caller_leads_ = false;
  if (follower_count_ != 0) follower_wake_.notify_all();
  if (service_parked_long_) service_wake_.notify_one();
  // What this thread heard while both slept there was meant for the service thread too: a timer,
  // work, the end.
  if (ring_taken_.exchange(false) && service_in_epoll_.load()) kick();
}

bool Engine::lead_once(Deadline deadline) {
  lead_rounds_.fetch_add(1, std::memory_order_relaxed);
  const auto list = snapshot();
  {
    const Lock lock(sleep_mutex_);
    ++sleeper_count_;
    for (const auto& link : *list) link->announce_sleep();
  }
  bool look_now = stopping_ || closed_;
  for (const auto& link : *list) look_now = look_now || (!link->ended() && link->has_input());
  look_now = look_now || works_.has_input();
  const int timeout_ms = look_now ? 0 : to_epoll_timeout(earlier(deadline, next_timer()));
  bool moved = dispatch_events(timeout_ms);
  retract_sleep(*list);
  moved = poll_links(*list) || moved;
  moved = works_.run() || moved;
  run_timers();
  if (moved) {
    const Lock lock(lead_mutex_);
    progress_count_.fetch_add(1);
    if (follower_count_ != 0) follower_wake_.notify_all();
    // The caller in epoll may wait for just what this thread took in, or for the ring it swallowed.
    if (caller_leads_ && served_here == this) kick();
  }
  return moved;
}

void Engine::retract_sleep(const LinkList& links) {
  const Lock lock(sleep_mutex_);
  if (--sleeper_count_ != 0) return;
  for (const auto& link : links) link->announce_awake();
}

bool Engine::dispatch_events(int timeout_ms) {
  std::array<epoll_event, 32> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  bool moved = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    moved = true;
    if (event.data.u64 == 0) {
      drain(doorbell_.get());
      if (served_here != this) ring_taken_ = true;
      continue;
    }
    std::shared_ptr<FdHandler> handler;
    int fd = -1;
    {
      const Lock lock(watch_mutex_);
      const auto found = watched_.find(event.data.u64);
      if (found == watched_.end()) continue;
      handler = found->second.handler.lock();
      fd = found->second.fd;
    }
    if (handler != nullptr)
      handler->on_ready(fd, event.events);
    else
      forget(fd);
  }
  return moved;
}

bool Engine::poll_links(const LinkList& links) {
  bool moved = false;
  for (const auto& link : links) {
    if (link->ended() || !link->has_input()) continue;
    const Lock receiving(link->receive_mutex());
    moved = link->poll() || moved;
  }
  return moved;
}

void Engine::serve() {
  served_here = this;
  std::uint64_t seen = activity_.load();
  auto park = kShortestPark;
  while (!stopping_) {
    const std::uint64_t activity = activity_.load(std::memory_order_relaxed);
    bool callers = activity != seen;
    seen = activity;
    {
      const Lock lock(lead_mutex_);
      callers = callers || caller_leads_;
      if (callers) {
        // A caller serves the links. Look again soon; wait for ever only while one sleeps in epoll,
        // which wakes this thread when it leaves.
        const auto wanted = [&] { return stopping_ || anything_ready_; };
        const std::uint64_t rounds = lead_rounds_.load();
        const Deadline parked(park);
        while (!wanted() && service_wake_.wait_until(lead_mutex_, parked)) {
        }
        if (caller_leads_ && lead_rounds_.load() == rounds && park == kLongestPark) {
          service_parked_long_ = true;
          while (!wanted() && caller_leads_) service_wake_.wait(lead_mutex_);
          service_parked_long_ = false;
        }
      }
    }
    if (!callers) {
      park = kShortestPark;
      // Before lead_once() looks for what there is to do: see stop_leading().
      service_in_epoll_ = true;
      lead_once(Deadline::never());
      service_in_epoll_ = false;
    } else {
      park = std::min(park * 2, milliseconds(kLongestPark));
      const auto list = snapshot();
      bool moved = dispatch_events(0);
      moved = poll_links(*list) || moved;
      moved = works_.run() || moved;
      run_timers();
      if (moved) wake_others();
    }
    run_callbacks();
  }
}

// Work, time, callbacks

void Engine::add_work(std::shared_ptr<Work> work) {
  works_.add(std::move(work));
  // Who goes to sleep later finds it in works_.has_input(), after it counted itself.
  if (sleeper_count_.load() != 0) kick();
}

std::uint64_t Engine::add_timed(Deadline when, std::weak_ptr<Timed> timed) {
  std::uint64_t id = 0;
  {
    const Lock lock(work_mutex_);
    id = next_timed_id_++;
    timed_.emplace(id, TimedEntry{when, std::move(timed)});
  }
  kick();
  return id;
}

void Engine::remove_timed(std::uint64_t id) {
  const Lock lock(work_mutex_);
  timed_.erase(id);
}

Deadline Engine::next_timer() const {
  Deadline next = Deadline::never();
  {
    const Lock lock(work_mutex_);
    for (const auto& [id, entry] : timed_) next = earlier(next, entry.when);
    if (!prefaults_.empty()) return Deadline::now();
  }
  const Lock lock(links_mutex_);
  return entries_.empty() ? next : earlier(next, Deadline::at(next_tick_));
}

void Engine::run_timers() {
  std::vector<std::shared_ptr<Timed>> due;
  std::vector<std::function<void()>> prefaults;
  {
    const Lock lock(work_mutex_);
    for (auto entry = timed_.begin(); entry != timed_.end();) {
      if (!entry->second.when.has_passed()) {
        ++entry;
        continue;
      }
      if (auto timed = entry->second.timed.lock()) due.push_back(std::move(timed));
      entry = timed_.erase(entry);
    }
    // Touching memory takes long: only the service thread, or who progresses by hand, has the time.
    if (!caller_leads_ || options_.progress == Progress::manual) prefaults.swap(prefaults_);
  }
  for (const auto& timed : due) timed->on_time();
  for (const auto& prefault : prefaults) prefault();

  const auto now = Clock::now();
  std::vector<LinkEntry> links;
  {
    const Lock lock(links_mutex_);
    std::erase_if(retired_,
                  [](const auto& link) { return link->stats().slots.quarantined_count == 0; });
    if (now < next_tick_) return;
    next_tick_ = now + kTick;
    links = entries_;
  }
  tickets_.advance(kTick);
  for (const LinkEntry& entry : links) {
    if (!entry.started) continue;
    if (entry.role == Role::acceptor && !entry.opened && now > entry.since + kFirstPipeTimeout)
      end_if_unused(entry.link);
    entry.link->tick(now);
    const bool suspect = entry.link->suspect();
    if (suspect == entry.was_suspect || entry.link->ended()) continue;
    {
      const Lock lock(links_mutex_);
      for (LinkEntry& kept : entries_)
        if (kept.link == entry.link) kept.was_suspect = suspect;
    }
    publish({suspect ? MemberEventKind::suspect : MemberEventKind::alive, entry.link->peer_name(),
             suspect ? "gives no sign of life, not proved dead" : "gives signs of life again",
             now});
  }
}

void Engine::prefault_soon(std::function<void()> prefault) {
  {
    const Lock lock(work_mutex_);
    prefaults_.push_back(std::move(prefault));
  }
  kick();
}

void Engine::schedule(std::function<void()> callback) {
  {
    const Lock lock(work_mutex_);
    ready_.push_back(std::move(callback));
    anything_ready_ = true;
  }
  user_event_.signal();
  {
    const Lock lock(lead_mutex_);
    service_wake_.notify_one();
  }
  kick();
}

bool Engine::run_callbacks() {
  if (!anything_ready_.load(std::memory_order_relaxed)) return false;
  std::vector<std::function<void()>> callbacks;
  {
    const Lock lock(work_mutex_);
    callbacks.swap(ready_);
    anything_ready_ = false;
  }
  for (const auto& callback : callbacks) {
    try {
      callback();
    } catch (const std::exception& failure) {
      log(LogLevel::error, "context.callback", failure.what());
    } catch (...) {
      log(LogLevel::error, "context.callback", "an exception that is no std::exception");
    }
  }
  return !callbacks.empty();
}

void Engine::publish(MemberEvent event) {
  recorder_.record("member", event.member, static_cast<std::uint64_t>(event.kind));
  log(event.kind == MemberEventKind::joined || event.kind == MemberEventKind::left ? LogLevel::info
                                                                                   : LogLevel::warn,
      "context.member",
      std::string(to_string(event.kind)) + ": " + event.member + ": " + event.reason);
  bool anybody = false;
  {
    const Lock lock(work_mutex_);
    anybody = !member_callbacks_.empty();
  }
  if (!anybody) {
    user_event_.signal();
    return;
  }
  schedule([self = shared_from_this(), event = std::move(event)] {
    std::vector<std::function<void(const MemberEvent&)>> callbacks;
    {
      const Lock lock(self->work_mutex_);
      callbacks = self->member_callbacks_;
    }
    for (const auto& callback : callbacks) callback(event);
  });
}

void Engine::on_member(std::function<void(const MemberEvent&)> callback) {
  if (forked()) return;
  const Lock lock(work_mutex_);
  member_callbacks_.push_back(std::move(callback));
}

// Links

Result<void> Engine::may_add_link(const PeerIdentity& peer, Role role, Profile profile) const {
  if (profile == Profile::local) return {};
  const Lock lock(links_mutex_);
  for (const LinkEntry& entry : entries_) {
    if (!is_of(entry, peer.context, role)) continue;
    const PeerIdentity& known = entry.link->peer();
    // The number of a context is no secret: whoever says it may be anybody.
    if (entry.profile == Profile::plaintext && known == peer) continue;
    return Error{ErrorCode::permission_denied, "context.add_link",
                 "peer " + peer.to_string() + " brings profile '" +
                     std::string(to_string(profile)) + "', which does not end the living link of " +
                     entry.link->peer_name() + " with profile '" +
                     std::string(to_string(entry.profile)) + "' and the same context id"};
  }
  return {};
}

Result<void> Engine::make_room(const ContextId& peer) {
  std::vector<std::shared_ptr<Link>> candidates;
  {
    const Lock lock(links_mutex_);
    if (entries_.size() < kMaxLinksPerContext) return {};
    for (const LinkEntry& entry : entries_) {
      if (is_of(entry, peer, Role::acceptor)) return {};
      if (entry.started && entry.role == Role::acceptor && entry.profile != Profile::local)
        candidates.push_back(entry.link);
    }
  }
  // The oldest first.
  for (const auto& link : candidates) {
    {
      const Lock receiving(link->receive_mutex());
      if (link->pipe_count() != 0) continue;
    }
    end_idle(link, "it carries no pipe, and another peer needs its place");
    return {};
  }
  return Error{
      ErrorCode::server_busy, "context.add_link",
      "this context carries its " + std::to_string(kMaxLinksPerContext) + " links already"};
}

void Engine::renew(const Link& link) {
  const Lock lock(links_mutex_);
  for (LinkEntry& entry : entries_)
    if (entry.link.get() == &link) entry.since = Clock::now();
}

// Its pipe may be announced already, and unread because nobody made progress.
void Engine::end_if_unused(const std::shared_ptr<Link>& link) {
  poll_link(*link);
  {
    const Lock lock(links_mutex_);
    for (const LinkEntry& entry : entries_)
      if (entry.link == link && entry.opened) return;
  }
  if (!link->ended()) {
    end_idle(link, "it opened no pipe within " + std::to_string(kFirstPipeTimeout.count()) +
                       " s of its handshake");
  }
}

void Engine::end_idle(const std::shared_ptr<Link>& link, std::string_view why) {
  link->close(Error{ErrorCode::peer_lost, "context.links",
                    "the link to " + link->peer_name() + " was ended: " + std::string(why)});
}

Result<void> Engine::add_link(const std::shared_ptr<Link>& link, Role role, Profile profile) {
  TENDON_CHECK(usable("context.add_link"));
  TENDON_CHECK(may_add_link(link->peer(), role, profile));
  std::shared_ptr<Link> older;
  {
    const Lock lock(links_mutex_);
    for (const LinkEntry& entry : entries_)
      if (is_of(entry, link->peer().context, role)) older = entry.link;
    if (older == nullptr && entries_.size() >= kMaxLinksPerContext) {
      return Error{
          role == Role::acceptor ? ErrorCode::server_busy : ErrorCode::limit_exceeded,
          "context.add_link",
          "this context carries its " + std::to_string(kMaxLinksPerContext) + " links already"};
    }
    // Before it starts: a pipe may be opened on it from then on.
    entries_.push_back({.link = link, .role = role, .profile = profile, .since = Clock::now()});
  }
  // The peer made a new one, so it has given up the old one, whatever this side still thinks of it.
  if (older != nullptr) {
    older->fail(Error{ErrorCode::peer_lost, "context.add_link",
                      "peer " + link->peer_name() + " made a new link in place of this one"},
                false);
  }
  const auto started = link->start(*this, *this);
  {
    const Lock lock(links_mutex_);
    if (!started) std::erase_if(entries_, [&](const auto& entry) { return entry.link == link; });
    for (LinkEntry& entry : entries_)
      if (entry.link == link) entry.started = true;
    refresh_snapshot();
  }
  TENDON_CHECK(started);
  announce_again(*link);  // somebody may sleep already, without having said so on this link
  kick();
  recorder_.record("link", link->peer_name(), static_cast<std::uint64_t>(link->path().kind));
  publish({MemberEventKind::joined, link->peer_name(), link->path().to_string(), Clock::now()});
  return {};
}

std::shared_ptr<Link> Engine::connected_link(const ContextId& peer) const {
  const Lock lock(links_mutex_);
  for (const LinkEntry& entry : entries_)
    if (entry.started && is_of(entry, peer, Role::connector)) return entry.link;
  return nullptr;
}

Result<std::shared_ptr<Link>> Engine::link_for(const ContextId& peer, Role role,
                                               Profile profile) const {
  const Lock lock(links_mutex_);
  for (const LinkEntry& entry : entries_) {
    if (!entry.started || !is_of(entry, peer, role)) continue;
    TENDON_CHECK(satisfies(entry, profile));
    return entry.link;
  }
  return std::shared_ptr<Link>();
}

bool Engine::begin_connecting(const ContextId& peer) {
  const Lock lock(links_mutex_);
  if (std::find(connecting_.begin(), connecting_.end(), peer) != connecting_.end()) return false;
  connecting_.push_back(peer);
  return true;
}

void Engine::end_connecting(const ContextId& peer) {
  {
    const Lock lock(links_mutex_);
    std::erase(connecting_, peer);
  }
  wake_others();
}

std::vector<std::shared_ptr<Link>> Engine::links() const { return *snapshot(); }

std::shared_ptr<const Engine::LinkList> Engine::snapshot() const {
  const Lock lock(links_mutex_);
  return snapshot_;
}

void Engine::refresh_snapshot() {
  auto list = std::make_shared<LinkList>();
  for (const LinkEntry& entry : entries_)
    if (entry.started) list->push_back(entry.link);
  snapshot_ = std::move(list);
}

void Engine::add_handler(std::weak_ptr<OpenHandler> handler) {
  const Lock lock(links_mutex_);
  std::erase_if(handlers_, [](const auto& known) { return known.expired(); });
  handlers_.push_back(std::move(handler));
}

void Engine::on_open(Link& link, const Descriptor& descriptor, Bytes ticket_bytes) {
  link.receive_mutex().assert_held();
  const auto refuse = [&](ErrorCode code, std::string_view text) {
    Descriptor answer;
    answer.kind = MessageKind::error;
    answer.pipe = descriptor.pipe;
    answer.tag = static_cast<std::uint32_t>(code);
    answer.payload_bytes = text.size();
    link.post(answer, as_bytes(text));
  };
  Token token{};
  if (ticket_bytes.size() != token.size())
    return refuse(ErrorCode::protocol_violation, "a pipe was opened without a ticket");
  if (descriptor.pipe == 0 || link.carries(descriptor.pipe)) {
    return refuse(ErrorCode::protocol_violation,
                  "pipe " + std::to_string(descriptor.pipe) + " is 0 or open already");
  }
  std::memcpy(token.data(), ticket_bytes.data(), token.size());
  // Its last other share may go meanwhile, and its end may need the lock that is held here.
  struct Handler {
    Engine& engine;
    std::shared_ptr<OpenHandler> share;
    ~Handler() {
      if (share != nullptr) engine.schedule([share = std::move(share)] {});
    }
  } handler{*this, nullptr};
  const auto entrance = tickets_.find(token, link.peer().context);
  Result<void> may_carry;
  {
    const Lock lock(links_mutex_);
    const auto entry = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& known) { return known.link.get() == &link; });
    if (entry == entries_.end()) return;  // ended meanwhile
    if (entry->role != Role::acceptor) {
      return refuse(ErrorCode::protocol_violation,
                    "only the side that connected opens pipes on this link");
    }
    if (entrance) {
      handler.share = entrance->handler.lock();
      may_carry = satisfies(*entry, entrance->profile);
    }
  }
  if (!entrance) return refuse(entrance.error().code, entrance.error().detail);
  if (handler.share == nullptr) return refuse(ErrorCode::unreachable, "the listener was closed");
  if (!may_carry) {
    log(LogLevel::warn, "context.on_open", "refused a pipe: " + may_carry.error().detail);
    return refuse(may_carry.error().code, may_carry.error().detail);
  }
  if (link.pipe_count() >= kMaxPipesPerLink)
    return refuse(ErrorCode::server_busy,
                  "this link carries its " + std::to_string(kMaxPipesPerLink) + " pipes already");
  auto sink = handler.share->on_open(link.shared_from_this(), descriptor.pipe);
  if (!sink) return refuse(sink.error().code, sink.error().detail);
  link.attach(descriptor.pipe, *std::move(sink));
  const Lock lock(links_mutex_);
  for (LinkEntry& entry : entries_)
    if (entry.link.get() == &link) entry.opened = true;
}

void Engine::on_ended(Link& link, const Error* error) {
  link.receive_mutex().assert_held();
  {
    const Lock lock(links_mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->link.get() != &link) continue;
      // A hung peer may still write its slots: they count, and are looked after, until it is proved
      // dead. After a goodbye nobody will ever use them again, and the peer's own mapping keeps its
      // views.
      if (error != nullptr && entry->link->stats().slots.quarantined_count != 0) {
        if (retired_.size() >= kMaxRetiredLinks) retired_.erase(retired_.begin());
        retired_.push_back(entry->link);
      }
      entries_.erase(entry);
      break;
    }
    refresh_snapshot();
  }
  recorder_.record("link ended", link.peer_name(), error == nullptr ? 0 : 1);
  if (closed_) return;
  if (error != nullptr) {
    std::vector<std::shared_ptr<OpenHandler>> handlers;
    {
      const Lock lock(links_mutex_);
      for (const auto& handler : handlers_)
        if (auto alive = handler.lock()) handlers.push_back(std::move(alive));
    }
    for (auto& handler : handlers) {
      handler->on_link_lost(link);
      // Its last other share may go meanwhile, and its end may need the lock that is held here.
      schedule([handler = std::move(handler)] {});
    }
  }
  publish({error == nullptr ? MemberEventKind::left : MemberEventKind::lost, link.peer_name(),
           error == nullptr ? "closed its context" : error->detail, Clock::now()});
}

// Reactor

Result<void> Engine::watch(int fd, std::uint32_t events, std::weak_ptr<FdHandler> handler) {
  const Lock lock(watch_mutex_);
  const std::uint64_t id = next_watch_id_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return system_error("context.watch", "epoll_ctl of descriptor " + std::to_string(fd), errno);
  watched_[id] = {fd, std::move(handler)};
  watch_id_of_fd_[fd] = id;
  return {};
}

void Engine::change(int fd, std::uint32_t events) {
  const Lock lock(watch_mutex_);
  const auto id = watch_id_of_fd_.find(fd);
  if (id == watch_id_of_fd_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id->second;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Engine::forget(int fd) {
  const Lock lock(watch_mutex_);
  const auto id = watch_id_of_fd_.find(fd);
  if (id == watch_id_of_fd_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watched_.erase(id->second);
  watch_id_of_fd_.erase(id);
}

void Engine::kick() noexcept {
  if (forked()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(doorbell_.get(), &one, sizeof one);
}

// Context

std::map<std::string, std::uint64_t> Engine::unsent() {
  std::map<std::string, std::uint64_t> peers;
  for (const auto& work : works_.all()) {
    const Unsent left = work->unsent();
    if (!left.peer.empty()) peers[left.peer] += left.message_count;
  }
  const auto list = snapshot();
  for (const auto& link : *list)
    if (!link->ended() && !link->drained()) peers.try_emplace(link->peer_name(), 0);
  return peers;
}

Result<void> Engine::close(Deadline deadline) {
  if (forked()) {
    // The child has no service thread to join; its copy of the handle just goes.
    if (service_.joinable()) service_.detach();
    return usable("context.close");
  }
  if (closing_.exchange(true)) return {};
  std::vector<std::shared_ptr<OpenHandler>> handlers;
  {
    const Lock lock(links_mutex_);
    for (const auto& handler : handlers_)
      if (auto alive = handler.lock()) handlers.push_back(std::move(alive));
    handlers_.clear();
  }
  for (const auto& handler : handlers) handler->on_context_closed();
  handlers.clear();

  wait(nullptr, deadline, [this] { return unsent().empty(); });
  std::string left;
  for (const auto& [peer, message_count] : unsent()) {
    publish({MemberEventKind::unsent, peer,
             "the context was closed before everything was sent to it; messages that had not begun "
             "to leave: " +
                 std::to_string(message_count),
             Clock::now()});
    left += (left.empty() ? "" : ", ") + peer;
  }
  // The last chance for callbacks to hear of it.
  if (!left.empty() && served_here != this) run_callbacks();
  closed_.store(true, std::memory_order_release);
  const auto list = snapshot();
  for (const auto& link : *list) {
    link->close(Error{ErrorCode::context_closed, "context.close",
                      "context '" + options_.name + "' was closed"});
  }
  {
    const Lock lock(work_mutex_);
    timed_.clear();
  }
  for (const auto& work : works_.take())
    (void)work->progress();  // what was pending ends with `context_closed`
  stopping_ = true;
  {
    const Lock lock(lead_mutex_);
    progress_count_.fetch_add(1);
    follower_wake_.notify_all();
    service_wake_.notify_all();
  }
  kick();
  if (service_.joinable()) {
    if (served_here == this)
      service_.detach();
    else
      service_.join();
  }
  run_callbacks();
  {
    const Lock lock(links_mutex_);
    retired_.clear();
    entries_.clear();
    refresh_snapshot();
  }
  // A caller that still sleeps in epoll swallowed the ring above at most once: ring again for the
  // next.
  kick();
  if (left.empty()) return {};
  return Error{
      ErrorCode::timeout, "context.close",
      "context '" + options_.name + "': not everything was sent before the deadline to " + left};
}

bool Engine::progress() {
  if (options_.progress != Progress::manual || unusable()) return false;
  const auto list = snapshot();
  {
    const Lock lock(sleep_mutex_);
    if (sleeper_count_ != 0) {
      sleeper_count_ = 0;  // what arm() announced
      for (const auto& link : *list) link->announce_awake();
    }
  }
  bool moved = dispatch_events(0);
  moved = poll_links(*list) || moved;
  moved = works_.run() || moved;
  run_timers();
  return run_callbacks() || moved;
}

int Engine::user_fd() const noexcept {
  return options_.progress == Progress::manual ? epoll_.get() : user_event_.fd();
}

bool Engine::arm() {
  if (options_.progress != Progress::manual) return !user_event_.take();
  const auto list = snapshot();
  {
    const Lock lock(sleep_mutex_);
    sleeper_count_ = 1;
    for (const auto& link : *list) link->announce_sleep();
  }
  if (anything_ready_) return false;
  for (const auto& link : *list)
    if (!link->ended() && link->has_input()) return false;
  return !works_.has_input();
}

std::vector<PeerIdentity> Engine::members() const {
  std::vector<PeerIdentity> members;
  if (forked()) return members;
  const auto list = snapshot();
  for (const auto& link : *list)
    if (!link->ended()) members.push_back(link->peer());
  return members;
}

std::string Engine::describe() const {
  if (forked()) return why_unusable("context.describe").message() + "\n";
  std::string text = "context '" + options_.name + "' " + identity_.context.to_string() + " (pid " +
                     std::to_string(identity_.pid) + ", host " + identity_.host + ")";
  text += closed_ ? ", closed\n" : "\n";
  text += "progress: " +
          std::string(options_.progress == Progress::manual ? "manual" : "service thread");
  text += ", cpus: " + std::to_string(cpu_count_);
  text += ", link cap: " + std::to_string(options_.link_cap_bytes) + " bytes\n";
  const SlotPoolStats pool = pool_->stats();
  text += "pool: " + std::to_string(pool.loaned_count) + " slots in use, " +
          std::to_string(pool.resident_bytes) + " bytes resident\n";
  const Lock lock(links_mutex_);
  for (const LinkEntry& entry : entries_) {
    if (!entry.started) continue;
    const LinkStats stats = entry.link->stats();
    text += "link to " + entry.link->peer_name() + " by " + entry.link->path().to_string();
    text += entry.link->suspect() ? ", suspect\n" : "\n";
    text += "  sent " + std::to_string(stats.messages_sent) + " messages (" +
            std::to_string(stats.bytes_sent) + " bytes), received " +
            std::to_string(stats.messages_received) + " (" + std::to_string(stats.bytes_received) +
            " bytes)\n";
    text += "  slots with the peer " + std::to_string(stats.slots.sent_count) + " (" +
            std::to_string(stats.slots.sent_bytes) + " bytes), loaned " +
            std::to_string(stats.slots.loaned_count) + ", quarantined " +
            std::to_string(stats.slots.quarantined_count) + ", doorbells " +
            std::to_string(stats.doorbells) + "\n";
  }
  for (const auto& link : retired_) {
    const LinkStats stats = link->stats();
    text += "ended link to " + link->peer_name() + ": quarantined " +
            std::to_string(stats.slots.quarantined_count) + " slots (" +
            std::to_string(stats.slots.quarantined_bytes) + " bytes)\n";
  }
  return text;
}

}  // namespace tendon::v0::detail
