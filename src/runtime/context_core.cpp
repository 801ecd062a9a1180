// SPDX-License-Identifier: Apache-2.0
#include "runtime/context_core.hpp"

#include <cstring>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/limits.hpp>
#include <utility>

#include "observe/context_log.hpp"
#include "runtime/settings.hpp"
#include "runtime/strangers.hpp"
#include "runtime/waits_for.hpp"
#include "session/features.hpp"
#include "session/machine.hpp"
#include "session/socket_names.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;

// The Context that this thread serves, if any.
thread_local constinit const ContextCore* served_here = nullptr;

std::string describe_pool(std::string_view what, Device device,
                          const cuda::DevicePoolStats& stats) {
  return "pool of what is " + std::string(what) + to_string(device) + ": " +
         std::to_string(stats.used_bytes) + " bytes in use, " +
         std::to_string(stats.resident_bytes) + " of " + std::to_string(stats.cap_bytes) +
         " bytes resident in " + std::to_string(stats.segments) + " segments";
}

}  // namespace

ContextCore::ContextCore(ContextOptions options)
    : options_(std::move(options)),
      memory_{std::make_shared<SlotPool>("pool of this context", options_.pool_cap_bytes,
                                         Writers::maker_only),
              std::make_shared<cuda::DevicePools>(options_.device_cap_bytes),
              std::make_shared<cuda::DevicePools>(options_.device_cap_bytes)},
      links_(identity_.context, options_.streams),
      publishing_(options_.publish_bytes, links_),
      waiting_({.loop = loop_, .links = links_, .works = works_, .life = life_, .chores = *this},
               options_) {}

ContextCore::~ContextCore() = default;

Result<std::shared_ptr<ContextCore>> ContextCore::create(ContextOptions options) {
  TENDON_TRY(resolved, resolve_options(std::move(options)));
  auto context = std::make_shared<ContextCore>(std::move(resolved));
  TENDON_CHECK(context->open());
  return context;
}

Result<void> ContextCore::open() {
  (void)boot_id();  // while a descriptor is free; later hellos need it
  TENDON_TRY(id, random_nonce());
  identity_.context.bytes = id;
  identity_.incarnation =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  identity_.pid = process_id();
  identity_.uid = user_id();
  identity_.host = host_name();
  identity_.name = options_.name;
  sweep_leftovers_at_start();
  TENDON_CHECK(loop_.open());
  if (options_.progress == Progress::manual) return {};
  if (!user_event_.open()) return system_error("context.create", "eventfd", errno);
  TENDON_TRY(service, Thread::start({.name = "tendon-service",
                                     .where = "context.create",
                                     .task = "that serves the context"},
                                    [self = shared_from_this()] { self->serve(); }));
  service_ = std::move(service);
  return {};
}

void ContextCore::serve() {
  served_here = this;
  waiting_.serve();
  run_last_callbacks();  // if one of them closed the Context, close() did not run the rest
}

std::string ContextCore::log_name() const {
  constexpr std::size_t kDigits = 8;
  const std::string id = identity_.context.to_string().substr(0, kDigits);
  return identity_.name.empty() ? id : identity_.name + '/' + id;
}

void ContextCore::log(LogLevel level, std::string_view where,
                      std::string_view text) const noexcept {
  if (!log_enabled(level)) return;
  try {
    log_of(log_name(), level, where, text);
  } catch (...) {
    // Without memory for a name there is none for a line either.
  }
}

HelloMessage ContextCore::hello(Profile profile) const {
  HelloMessage message;
  message.kind = HelloKind::hello;
  message.version.minor = options_.protocol_minor;
  message.features = Features::of_minor(options_.protocol_minor).bits();
  message.profile = profile;
  message.context_id = identity_.context;
  message.incarnation = identity_.incarnation;
  message.pid = identity_.pid;
  message.uid = identity_.uid;
  message.host = identity_.host;
  message.name = identity_.name;
  message.library_version = kVersion;
  message.boot_id = boot_id();
  message.progress =
      options_.progress == Progress::manual ? ProgressMode::manual : ProgressMode::service;
  // The path that this side insists on, if any.
  if (options_.transport == Transport::shm) message.path = PathKind::shm;
  if (options_.transport == Transport::tcp) message.path = PathKind::tcp;
  message.limits = LinkLimits{.link_cap_bytes = options_.link_cap_bytes,
                              .window_messages = kPipeWindowMessages,
                              .window_bytes = kPipeWindowBytes,
                              .max_leaves = static_cast<std::uint32_t>(kMaxLeaves),
                              .streams = options_.streams};
  return message;
}

Error ContextCore::why_unusable(std::string_view where) const {
  if (forked()) {
    return Error{ErrorCode::forked, where,
                 "context '" + options_.name + "' belongs to process " +
                     std::to_string(identity_.pid) +
                     "; this is a forked child: create a Context of its own here"};
  }
  return Error{ErrorCode::context_closed, where, "context '" + options_.name + "' was closed"};
}

// Waiting

bool ContextCore::poll_link(Link& link) {
  Receiving receiving(*this, link);
  return receiving.poll();
}

void ContextCore::poll_every_link() {
  if (waiting_.poll_links()) waiting_.note_moved();
}

// Work, time, callbacks

void ContextCore::add_work(std::shared_ptr<Work> work) {
  works_.add(std::move(work));
  waiting_.wake_sleeper();
}

void ContextCore::wake_for_work() {
  waiting_.wake_others();
  waiting_.wake_sleeper();
}

std::uint64_t ContextCore::add_timed(Deadline when, std::weak_ptr<Timed> timed) {
  const std::uint64_t id = timers_.add(when, std::move(timed));
  loop_.ring();
  return id;
}

Deadline ContextCore::next_chore(Pace pace) const {
  if (pace == Pace::unhurried && prefaults_.any()) return Deadline::now();
  const Deadline next = earlier(timers_.next(), links_.next_tick());
  Deadline due = next;
  for (const auto& pools : {memory_.devices, memory_.passed})
    if (const auto trim = pools->next_trim()) due = earlier(due, Deadline::at(*trim));
  return due;
}

void ContextCore::run_chores(Pace pace) {
  timers_.run();
  if (pace == Pace::unhurried) prefaults_.run(*this);
  const auto now = Clock::now();
  memory_.devices->trim(now);
  memory_.passed->trim(now);
  const auto entries = links_.take_tick(now);
  if (!entries) return;
  // Nothing else signals returns on links that have ended.
  if (links_.collect_returns(LinkTable::Of::ended_with_holds)) wake_others();
  tickets_.advance(LinkTable::kTick);
  for (const LinkEntry& entry : *entries)
    if (entry.started) tick(entry, now);
}

void ContextCore::tick(const LinkEntry& entry, Clock::time_point now) {
  Link& link = *entry.link;
  if (link.role() == LinkRole::acceptor && !entry.opened && now > entry.since + kFirstPipeTimeout)
    end_if_unused(entry.link);
  link.tick(now);
  if (entry.clock.is_due(boot_time_ns())) ask_clock(link);
  if (link.features().has(Feature::retire) && !link.ended()) {
    const Lock receiving(link.receive_mutex());
    if (links_.tick_retirement(link, use_of(link), now) == Retirement::Action::say_retire)
      link.post(Descriptor{.kind = MessageKind::retire});
  }
  const bool suspect = link.suspect();
  const SignsOfLife signs = suspect ? SignsOfLife::missing : SignsOfLife::heard;
  if (signs == entry.reported || link.ended()) return;
  links_.note_reported(link, signs);
  publish({suspect ? MemberEventKind::suspect : MemberEventKind::alive, link.peer_name(),
           suspect ? "gives no sign of life, not proved dead" : "gives signs of life again", now,
           link.peer().context},
          LogLevel::warn);
}

bool ContextCore::has_callbacks() const noexcept { return callbacks_.any() || prefaults_.any(); }

void ContextCore::prefault_soon(std::function<void()> prefault) {
  prefaults_.add(std::move(prefault));
  waiting_.wake_service();
}

void ContextCore::schedule(std::function<void()> callback) {
  callbacks_.add(std::move(callback));
  user_event_.signal();
  waiting_.wake_service();
}

void ContextCore::publish(MemberEvent event, LogLevel level) {
  recorder_.record("member", event.member, static_cast<std::uint64_t>(event.kind));
  log(level, "context.member",
      std::string(to_string(event.kind)) + ": " + event.member + ": " + event.reason);
  if (!member_callbacks_.admit()) {
    user_event_.signal();
    return;
  }
  schedule([self = shared_from_this(), event = std::move(event)] {
    self->member_callbacks_.call(event);
  });
}

void ContextCore::on_member(std::function<void(const MemberEvent&)> callback) {
  if (!forked()) member_callbacks_.add(std::move(callback));
}

// Links

Result<void> ContextCore::make_room(const PeerIdentity& peer, const LinkOrigin& origin) {
  const auto candidates = links_.candidates_to_end(peer, origin);
  if (!candidates) return {};
  for (const auto& link : *candidates) {
    {
      const Lock receiving(link->receive_mutex());
      if (link->pipe_count() != 0) continue;
    }
    end_idle(link, "it carries no pipe, and another peer needs its place");
    return {};
  }
  return links_.full(LinkRole::acceptor, origin);
}

// The peer's pipe may be announced already but unread, because no thread made progress.
void ContextCore::end_if_unused(const std::shared_ptr<Link>& link) {
  poll_link(*link);
  const auto entry = links_.entry_of(*link);
  if ((entry && entry->opened) || link->ended()) return;
  end_idle(link, "it opened no pipe within " + std::to_string(kFirstPipeTimeout.count()) +
                     " s of its handshake");
}

void ContextCore::end_idle(const std::shared_ptr<Link>& link, std::string_view why) {
  link->close(Error{ErrorCode::peer_lost, "context.links",
                    "the link to " + link->peer_name() + " was ended: " + std::string(why)});
}

Result<void> ContextCore::add_link(const std::shared_ptr<Link>& link, LinkRole role, Proofs proofs,
                                   Features features, const LinkOrigin& origin) {
  TENDON_CHECK(usable("context.add_link"));
  TENDON_CHECK(links_.may_add(link->peer(), role, proofs, origin));
  link->agree(features.both(Features::of_minor(options_.protocol_minor)), role);
  // Inserts the link before it starts, because a pipe may be opened on it from then on.
  TENDON_TRY(older, links_.insert(link, std::move(proofs), origin));
  // The peer made a new link, so it has dropped the old one, whatever this side assumes.
  if (older != nullptr) {
    older->fail(Error{ErrorCode::peer_lost, "context.add_link",
                      "peer " + link->peer_name() + " made a new link in place of this one"},
                Death::not_proved);
  }
  if (auto started = link->start(loop_, *this); !started) {
    links_.remove(*link);
    return started;
  }
  links_.started(*link);
  // A thread may sleep already, without having announced that on this link.
  waiting_.sleepers().announce_again(*link);
  loop_.ring();
  recorder_.record("link", link->peer_name(), static_cast<std::uint64_t>(link->path().kind));
  publish({MemberEventKind::joined, link->peer_name(), link->path().to_string(), Clock::now(),
           link->peer().context},
          LogLevel::info);
  return {};
}

Result<void> ContextCore::may_open_pipe(Link& link) {
  if (link.ended()) return link.end_error();
  if (!link.may_open()) {
    return Error{ErrorCode::not_supported, "context.open",
                 "the link to " + link.peer_name() +
                     " was made by the peer, whose version of the protocol lets it alone open "
                     "pipes there"};
  }
  if (link.pipe_count() < link.most_pipes()) return {};
  return Error{ErrorCode::limit_exceeded, "context.open",
               "the link to " + link.peer_name() + " carries its " +
                   std::to_string(link.most_pipes()) + " pipes already (" +
                   std::string(link.name_of_most_pipes()) + "): close some"};
}

void ContextCore::say_open(Link& link, std::uint32_t pipe, const Opening& opening) {
  links_.note_opened(link);
  link.post(opening.descriptor(pipe), opening.header);
}

Result<Entrance> ContextCore::entrance_of(const Link& link, Purpose purpose, Bytes header) const {
  if (purpose != Purpose::ticket) {
    if (link.features().has(Feature::purposes)) return purposes_.find(purpose);
    return Error{ErrorCode::protocol_violation, "context.open",
                 "a purpose was named, and the hello did not say so"};
  }
  Nonce128 token{};
  if (header.size() != token.size())
    return Error{ErrorCode::protocol_violation, "context.open",
                 "a pipe was opened without a ticket"};
  std::memcpy(token.data(), header.data(), token.size());
  return tickets_.find(token, link.peer().context);
}

void ContextCore::on_open(Link& link, const Descriptor& descriptor, Bytes header) {
  link.receive_mutex().assert_held();
  const auto refuse = [&](ErrorCode code, std::string_view text) {
    link.post_error(descriptor.pipe, code, text);
  };
  if (descriptor.pipe == 0 || link.carries(descriptor.pipe)) {
    return refuse(ErrorCode::protocol_violation,
                  "pipe " + std::to_string(descriptor.pipe) + " is 0 or open already");
  }
  if (!link.peer_may_open(descriptor.pipe)) {
    return refuse(ErrorCode::protocol_violation,
                  link.features().has(Feature::purposes)
                      ? "the side that connected opens pipes under odd numbers, the other one "
                        "under even numbers"
                      : "only the side that connected opens pipes on this link");
  }
  struct Handler {
    ContextCore& context;
    std::shared_ptr<OpenHandler> share;
    ~Handler() {
      if (share != nullptr) context.keep_for_now(std::move(share));
    }
  } handler{*this, nullptr};
  const auto purpose = static_cast<Purpose>(descriptor.schema);
  const auto entrance = entrance_of(link, purpose, header);
  const auto entry = links_.entry_of(link);
  if (!entry) return;  // the link ended meanwhile
  if (!entrance) return refuse(entrance.error().code, entrance.error().detail);
  handler.share = entrance->handler.lock();
  const Result<void> may_carry = entry->satisfies(entrance->profile);
  if (handler.share == nullptr) return refuse(ErrorCode::unreachable, "the listener was closed");
  if (!may_carry) {
    refuse_stranger(this, "context.on_open", stranger_at(link), may_carry.error().detail);
    return refuse(may_carry.error().code, may_carry.error().detail);
  }
  if (link.pipe_count() >= link.most_pipes())
    return refuse(ErrorCode::server_busy,
                  "this link carries its " + std::to_string(link.most_pipes()) +
                      " pipes already (" + std::string(link.name_of_most_pipes()) + ")");
  auto sink = handler.share->on_open(link.shared_from_this(), descriptor,
                                     purpose == Purpose::ticket ? Bytes() : header);
  if (!sink) return refuse(sink.error().code, sink.error().detail);
  link.attach(descriptor.pipe, *std::move(sink));
  links_.note_opened(link);
}

// Messages about a link

void ContextCore::ask_clock(Link& link) {
  if (!link.features().has(Feature::clock)) return;
  const std::int64_t now = boot_time_ns();
  links_.note_clock_asked(link, now);
  link.post(Descriptor{.kind = MessageKind::clock, .sequence = static_cast<std::uint64_t>(now)});
}

void ContextCore::on_word(Link& link, const Descriptor& word) {
  link.receive_mutex().assert_held();
  const auto now = boot_time_ns();
  if (word.kind == MessageKind::device) return wake_for_work();
  if (word.kind == MessageKind::retire && link.features().has(Feature::retire)) return retire(link);
  if (word.kind != MessageKind::clock || !link.features().has(Feature::clock)) return;
  if (word.tag == 0) {
    Descriptor answer = word;
    answer.tag = 1;
    answer.generation = static_cast<std::uint64_t>(now);
    answer.offset = static_cast<std::uint64_t>(boot_time_ns());
    return link.post(answer);
  }
  links_.note_clock(link, {.sent = static_cast<std::int64_t>(word.sequence),
                           .arrived = static_cast<std::int64_t>(word.generation),
                           .returned = static_cast<std::int64_t>(word.offset),
                           .received = now});
}

// Views on either side keep a link, because their slots return on it.
Retirement::Use ContextCore::use_of(Link& link) {
  (void)link.collect_returns();
  const LinkStats stats = link.stats();
  const bool used = link.pipe_count() != 0 || !link.drained() || stats.view_count != 0 ||
                    stats.holds != 0 ||
                    (link.traits().slots_go_over && stats.slots.sent_count != 0);
  return used ? Retirement::Use::used : Retirement::Use::unused;
}

void ContextCore::retire(Link& link) {
  switch (links_.hear_retirement(link, use_of(link), Clock::now())) {
    case Retirement::Action::nothing:
      return;
    case Retirement::Action::say_retire:
      return link.post(Descriptor{.kind = MessageKind::retire});
    case Retirement::Action::end:
      return link.retire(Error{
          ErrorCode::peer_lost, "context.links",
          "the link to " + link.peer_name() + " was ended by both sides, because nothing used it"});
  }
}

// Delays the end of this share: it may be the last, and its end may need the lock that is held
// here.
void ContextCore::keep_for_now(std::shared_ptr<OpenHandler> handler) {
  if (handlers_.keep(std::move(handler)))
    schedule([self = shared_from_this()] { self->handlers_.release(); });
}

void ContextCore::on_ended(Link& link, const Error* error) {
  link.receive_mutex().assert_held();
  // A hung peer may still write its slots, so they count and are watched until it is proved dead.
  // After a goodbye they are never used again, and the peer's own mapping keeps its views.
  // Published slots are used again once the peer has returned them.
  const LinkStats stats = link.stats();
  using Memory = LinkTable::Memory;
  const bool quarantined = error != nullptr && stats.slots.quarantined_count != 0;
  links_.note_ended(
      link, stats.holds != 0 ? Memory::held : (quarantined ? Memory::quarantined : Memory::done));
  recorder_.record("link ended", link.peer_name(), error == nullptr ? 0 : 1);
  if (life_.closed()) return;
  for (auto& handler : handlers_.alive()) {
    handler->on_link_ended(link, error);
    keep_for_now(std::move(handler));
  }
  if (link.retired()) return;
  const bool is_returned = error == nullptr || link.end_told_pipes();
  publish(
      {error == nullptr ? MemberEventKind::left : MemberEventKind::lost, link.peer_name(),
       error == nullptr ? "closed its context" : error->detail, Clock::now(), link.peer().context},
      is_returned ? LogLevel::info : LogLevel::warn);
}

// Context

std::map<ContextId, Unsent> ContextCore::unsent() {
  std::map<ContextId, Unsent> peers;
  for (const auto& work : works_.all()) {
    const Unsent left = work->unsent();
    if (left.peer.empty()) continue;
    Unsent& peer = peers.try_emplace(left.context, Unsent{left.peer, left.context}).first->second;
    peer.message_count += left.message_count;
  }
  const auto links = links_.all();
  for (const auto& link : *links)
    if (!link->ended() && !link->drained())
      peers.try_emplace(link->peer().context, Unsent{link->peer_name(), link->peer().context});
  return peers;
}

std::string ContextCore::publish_unsent() {
  std::string left;
  for (const auto& [context, peer] : unsent()) {
    publish({MemberEventKind::unsent, peer.peer,
             "the context was closed before everything was sent to it; messages that had not begun "
             "to leave: " +
                 std::to_string(peer.message_count),
             Clock::now(), context},
            LogLevel::info);
    left += (left.empty() ? "" : ", ") + peer.peer;
  }
  // Runs callbacks for the last time, so that they learn of it.
  if (!left.empty() && served_here != this) run_callbacks();
  return left;
}

// An operation that a callback starts now ends at once, and runs its own callback. The limit stops
// a callback that restarts it after each failure.
void ContextCore::run_last_callbacks() {
  constexpr int kMostRounds = 100'000;
  for (int round = 0; round < kMostRounds && run_callbacks(); ++round) continue;
}

void ContextCore::end_service() {
  life_.advance(Life::State::stopping);
  waiting_.wake_all();
  service_.join();
}

Result<void> ContextCore::close(Deadline deadline) {
  if (forked()) return why_unusable("context.close");
  if (!life_.begin_closing()) return {};
  for (const auto& handler : handlers_.take()) handler->on_context_closed();
  wait(nullptr, deadline, [this] { return unsent().empty(); });
  const std::string left = publish_unsent();
  life_.advance(Life::State::closed);
  const auto links = links_.all();
  for (const auto& link : *links) {
    link->close(Error{ErrorCode::context_closed, "context.close",
                      "context '" + options_.name + "' was closed"});
  }
  timers_.clear();
  for (const auto& work : works_.take())
    (void)work->progress();  // pending work ends with `context_closed`
  end_service();
  run_last_callbacks();
  links_.clear();
  // Rings again, because a caller that sleeps in epoll consumed at most the last ring.
  loop_.ring();
  if (left.empty()) return {};
  return Error{
      ErrorCode::timeout, "context.close",
      "context '" + options_.name + "': not everything was sent before the deadline to " + left};
}

bool ContextCore::progress() {
  if (options_.progress != Progress::manual || unusable()) return false;
  const bool moved = waiting_.make_progress();
  return run_callbacks() || moved;
}

int ContextCore::user_fd() const noexcept {
  return options_.progress == Progress::manual ? loop_.fd() : user_event_.fd();
}

bool ContextCore::arm() {
  if (forked()) return false;
  return options_.progress == Progress::manual ? waiting_.arm() : !user_event_.take();
}

std::vector<PeerIdentity> ContextCore::members() const {
  std::vector<PeerIdentity> members;
  if (forked()) return members;
  const auto links = links_.all();
  for (const auto& link : *links)
    if (!link->ended()) members.push_back(link->peer());
  return members;
}

std::string ContextCore::describe() const {
  if (forked()) return why_unusable("context.describe").message() + "\n";
  std::string text = "context '" + options_.name + "' " + identity_.context.to_string() + " (pid " +
                     std::to_string(identity_.pid) + ", host " + identity_.host + ")";
  text += life_.closed() ? ", closed\n" : "\n";
  text += "progress: " +
          std::string(options_.progress == Progress::manual ? "manual" : "service thread");
  text += ", cpus: " + std::to_string(waiting_.cpu_count());
  text += ", link cap: " + std::to_string(options_.link_cap_bytes) + " bytes\n";
  const SlotPoolStats pool = memory_.host->stats();
  text += "pool: " + std::to_string(pool.loaned_count) + " slots in use, " +
          std::to_string(pool.resident_bytes) + " bytes resident\n";
  const PublishPoolStats published = publishing_.pool()->stats();
  if (published.slots.segment_count != 0) {
    text += "publish pool: " + std::to_string(published.slots.loaned_count) + " slots in use, " +
            std::to_string(published.slots.resident_bytes) + " bytes resident, " +
            std::to_string(published.holds) + " holds of readers, quarantined " +
            std::to_string(published.quarantined) + "\n";
  }
  for (const auto& [device, stats] : memory_.devices->stats())
    text += describe_pool("received on ", device, stats) + "\n";
  for (const auto& [device, stats] : memory_.passed->stats()) {
    text += describe_pool("for peers on ", device, stats) + ", " +
            std::to_string(stats.holds.holds) + " holds of peers, " + stats.held_by + "\n";
  }
  return text + links_.describe();
}

}  // namespace tendon::v0::detail
