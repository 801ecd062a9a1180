// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/cables.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tendon/observe/log.hpp>
#include <utility>

#include "core/text.hpp"
#include "fabric/keys/name_chunk.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "fabric.cable";

// Control lanes have one eighth of the window.
constexpr std::uint64_t window_of(Lane lane) {
  return lane == Lane::control ? kCableWindowBytes / 8 : kCableWindowBytes * 7 / 8;
}

}  // namespace

std::uint64_t Cables::first_grant(Lane lane) noexcept { return share(lane, kMaxCables / 2); }

std::uint64_t Cables::share(Lane lane, std::size_t count) noexcept {
  return window_of(lane) / std::clamp<std::size_t>(count, 1, kMaxCables / 2);
}

Result<std::shared_ptr<Cables>> Cables::create(std::shared_ptr<ZenohPort> port,
                                               const ContextId& self) {
  auto cables = std::make_shared<Cables>(std::move(port));
  TENDON_CHECK(cables->listen(self));
  return cables;
}

Result<void> Cables::listen(const ContextId& self) {
  if (!wake_.open()) return system_error(kWhere, "eventfd", errno);
  TENDON_TRY(pattern,
             KeyExpression::parse(std::string(kOwnChunk) + "/*/cable/" + self.to_string() + "/*"));
  TENDON_TRY(frames, port_->subscribe(pattern, [weak = weak_from_this()](const ZenohMessage& came) {
    if (const auto cables = weak.lock()) cables->on_frame(came.payload);
  }));
  frames_ = std::move(frames);
  // Frames that are on their way, or put before the session is up again, are lost: no cable
  // survives that.
  TENDON_TRY(state, port_->on_state([weak = weak_from_this()](SessionState now) {
    const auto cables = weak.lock();
    if (cables == nullptr || now == SessionState::up) return;
    {
      const Lock lock(cables->mutex_);
      cables->work_.why_cut_all = "the router of discovery is gone";
    }
    cables->wake_.signal();
  }));
  state_ = std::move(state);
  return {};
}

// Any thread calls these.

Result<OwnedFd> Cables::lay(const CableTerms& terms) {
  TENDON_TRY(domain, name_to_chunk(terms.domain));
  TENDON_TRY(key, KeyExpression::parse(std::string(kOwnChunk) + '/' + domain + "/cable/" +
                                       terms.peer.to_string() + '/' + to_hex(terms.connection)));
  TENDON_TRY(seal, CableSeal::make(terms.key));
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return system_error(kWhere, "socketpair", errno);
  OwnedFd near(ends[0]);
  auto laid = std::make_unique<Laid>(
      Laid{.cable = Cable(terms.connection, terms.end, std::move(seal), first_grant(terms.lane)),
           .key = std::move(key),
           .lane = terms.lane,
           .far = OwnedFd(ends[1]),
           .frames = {}});
  laid->next_beat = Clock::now() + kBeat;
  {
    const Lock lock(mutex_);
    if (stopped_) return Error{ErrorCode::context_closed, kWhere, "its nodes were closed"};
    if (known_.contains(terms.connection)) {
      return Error{ErrorCode::invalid_argument, kWhere,
                   "there is a cable of this connection already"};
    }
    if (known_.size() >= kMaxCables) {
      return Error{ErrorCode::limit_exceeded, kWhere,
                   "this context has its " + std::to_string(kMaxCables) +
                       " cables already, two for each routed link"};
    }
    TENDON_CHECK(need_thread());
    known_.insert(terms.connection);
    work_.laid.emplace_back(terms.connection, std::move(laid));
  }
  wake_.signal();
  return near;
}

void Cables::post(std::function<void()> task) {
  {
    const Lock lock(mutex_);
    if (stopped_) return;
    if (const auto runs = need_thread(); !runs) {
      log(LogLevel::error, kWhere, runs.error().detail);
      return;
    }
    work_.tasks.push_back(std::move(task));
  }
  wake_.signal();
}

// Listens for frames until the thread has ended, as they grant what may still leave.
void Cables::stop() {
  Thread thread;
  {
    const Lock lock(mutex_);
    stopped_ = true;
    thread = std::move(thread_);
  }
  wake_.signal();
  thread.join();
  frames_.reset();
  state_.reset();
}

// Frames that name no cable here are dropped at once. The thread checks whether a stranger put the
// others.
void Cables::on_frame(const Storage& payload) {
  const auto frame = read_cable_frame(payload.bytes());
  {
    const Lock lock(mutex_);
    const bool may_be_ours = frame && known_.contains(frame->header.connection) &&
                             queued_bytes_ + payload.size_bytes() <= kMaxQueuedBytes;
    if (!may_be_ours) {
      dropped_frames_.fetch_add(1);
      return;
    }
    queued_bytes_ += payload.size_bytes();
    work_.frames.push_back({payload, *frame});
  }
  wake_.signal();
}

Result<void> Cables::need_thread() {
  if (thread_.joinable()) return {};
  TENDON_TRY(thread, Thread::start({.name = "tendon-cables", .where = kWhere, .task = "for cables"},
                                   [this] { run(); }));
  thread_ = std::move(thread);
  return {};
}

// The thread calls these.

Cables::Work Cables::take_work() {
  const Lock lock(mutex_);
  queued_bytes_ = 0;
  return std::exchange(work_, Work());
}

void Cables::run() {
  while (!is_stopped()) {
    work_once();
    if (!serve_all()) wait(Clock::time_point::max());
  }
  // Sends the last bytes of the links, as far as the far sides grant it.
  const auto until = Clock::now() + kLinger;
  while (!is_drained() && Clock::now() < until) {
    work_once();
    if (!serve_all()) wait(until);
  }
  cut_all("its nodes were closed");
  (void)serve_all();
}

void Cables::work_once() {
  (void)wake_.take();
  Work work = take_work();
  for (auto& [connection, laid] : work.laid) every_.emplace(connection, std::move(laid));
  for (const Came& came : work.frames) hear(came);
  if (!work.why_cut_all.empty()) cut_all(work.why_cut_all);
  for (const auto& task : work.tasks) task();
}

bool Cables::is_stopped() {
  const Lock lock(mutex_);
  return stopped_;
}

bool Cables::is_drained() const {
  return std::ranges::all_of(every_, [](const auto& entry) {
    int unread_bytes = 0;
    return ioctl(entry.second->far.get(), FIONREAD, &unread_bytes) != 0 || unread_bytes == 0;
  });
}

void Cables::cut_all(const std::string& why) {
  for (const auto& [connection, laid] : every_) cut(*laid, why);
}

void Cables::hear(const Came& came) {
  const auto found = every_.find(came.frame.header.connection);
  if (found == every_.end()) {
    dropped_frames_.fetch_add(1);
    return;
  }
  Laid& laid = *found->second;
  switch (laid.cable.hear(came.frame)) {
    case Cable::Verdict::taken:
      if (!came.frame.payload.empty()) laid.frames.push_back(came.bytes);
      return;
    case Cable::Verdict::dropped:
      dropped_frames_.fetch_add(1);
      return;
    case Cable::Verdict::breaks_it:
      cut(laid, laid.cable.why_broken());
      return;
  }
}

bool Cables::serve_all() {
  bool more = false;
  const auto now = Clock::now();
  for (const auto& [connection, laid] : every_)
    if (laid->why_cut.empty()) more |= serve(*laid, now);
  // The link still gets what arrived before its cable ended, as far as there is room.
  std::erase_if(every_, [this](auto& entry) {
    if (entry.second->why_cut.empty()) return false;
    write_what_came(*entry.second);
    const Lock lock(mutex_);
    known_.erase(entry.first);
    return true;
  });
  return more;
}

bool Cables::serve(Laid& laid, Clock::time_point now) {
  write_what_came(laid);
  grant(laid);
  const bool more = laid.why_cut.empty() && read_and_send(laid, now);
  if (!laid.why_cut.empty()) return false;
  const bool beats = now >= laid.next_beat;
  if (beats && !laid.cable.may_speak()) laid.next_beat = now + kBeat;
  if (laid.cable.owes_word() || (beats && laid.cable.may_speak())) put(laid, laid.cable.word());
  if (laid.cable.state() == Cable::State::over && laid.frames.empty())
    laid.why_cut = "both sides have ended it";
  return more;
}

void Cables::write_what_came(Laid& laid) {
  while (!laid.frames.empty()) {
    const Storage& frame = laid.frames.front();
    const Bytes payload =
        frame.bytes().subspan(sizeof(CableFrameHeader), frame.size_bytes() - kMinCableFrameBytes);
    const Bytes rest = payload.subspan(laid.written_bytes);
    const ssize_t sent =
        send(laid.far.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno != EAGAIN) cut(laid, "its link is gone");
      return;
    }
    laid.cable.note_taken(static_cast<std::uint64_t>(sent));
    laid.written_bytes += static_cast<std::size_t>(sent);
    if (laid.written_bytes < payload.size()) return;
    laid.frames.pop_front();
    laid.written_bytes = 0;
  }
  const auto state = laid.cable.state();
  if (state == Cable::State::ended_there || state == Cable::State::over)
    (void)shutdown(laid.far.get(), SHUT_WR);
}

// Other cables may hold more than their share until their bytes are taken. This one gets less by as
// much, but never less than the first grant.
void Cables::grant(Laid& laid) {
  std::size_t count = 0;
  std::uint64_t granted_to_others = 0;
  for (const auto& [connection, other] : every_) {
    if (other->lane != laid.lane) continue;
    ++count;
    if (other.get() != &laid) granted_to_others += other->cable.granted();
  }
  const std::uint64_t window = share(laid.lane, 1);
  const std::uint64_t left = window - std::min(window, granted_to_others);
  laid.cable.grant(std::max(first_grant(laid.lane), std::min(share(laid.lane, count), left)));
}

bool Cables::read_and_send(Laid& laid, Clock::time_point now) {
  if (laid.cable.may_send() == 0) {
    note_hung_up(laid, now);
    return false;
  }
  auto room = laid.cable.room();
  if (!room) {
    cut(laid, room.error().message());
    return false;
  }
  const ssize_t received = recv(laid.far.get(), room->data(), room->size(), MSG_DONTWAIT);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (received < 0) {
    cut(laid, "its link is gone");
    return false;
  }
  put(laid, received == 0 ? laid.cable.end() : laid.cable.data(static_cast<std::size_t>(received)));
  return laid.cable.may_send() != 0;
}

// poll() reports a hang-up at once and without end, so wait() does not ask again while nothing may
// be sent. The far side may never grant more, so the cable is cut after kLinger.
void Cables::note_hung_up(Laid& laid, Clock::time_point now) {
  pollfd one{laid.far.get(), 0, 0};
  if (poll(&one, 1, 0) <= 0 || (one.revents & (POLLHUP | POLLERR)) == 0) return;
  if (laid.hung_up_at == Clock::time_point{}) laid.hung_up_at = now;
  const bool has_ended_here = laid.cable.state() == Cable::State::ended_here;
  if (has_ended_here || now - laid.hung_up_at >= kLinger) cut(laid, "its link is gone");
}

void Cables::put(Laid& laid, Result<Storage> frame) {
  laid.next_beat = Clock::now() + kBeat;
  const auto sent = frame ? port_->put_patiently(laid.key, *std::move(frame))
                          : Result<void>(std::move(frame).error());
  // The next frames would leave a gap.
  if (!sent && laid.why_cut.empty()) laid.why_cut = sent.error().message();
}

void Cables::cut(Laid& laid, std::string why) {
  if (!laid.why_cut.empty()) return;
  laid.why_cut = std::move(why);
  log(LogLevel::info, kWhere, "the cable " + laid.key.text() + " is cut: " + laid.why_cut);
  if (laid.cable.state() != Cable::State::over) put(laid, laid.cable.cut());
}

void Cables::wait(Clock::time_point until) {
  std::vector<pollfd> ready;
  ready.reserve(every_.size() + 1);
  ready.push_back({wake_.fd(), POLLIN, 0});
  auto due = until;
  for (const auto& [connection, laid] : every_) {
    short events = laid->frames.empty() ? short{0} : short{POLLOUT};
    if (laid->cable.may_send() != 0) events |= POLLIN;
    due = std::min(due, laid->next_beat);
    // A link that has hung up has nothing else to report.
    const bool asks = events != 0 || laid->hung_up_at == Clock::time_point{};
    ready.push_back({asks ? laid->far.get() : -1, events, 0});
  }
  int wait_ms = -1;
  if (due != Clock::time_point::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - Clock::now());
    wait_ms = static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }
  (void)poll(ready.data(), ready.size(), wait_ms);
}

}  // namespace tendon::v0::detail
