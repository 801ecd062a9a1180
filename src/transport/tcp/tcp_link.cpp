// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp_link.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/failpoint.hpp"
#include "memory/recycler.hpp"
#include "transport/tcp/bulk_out.hpp"
#include "transport/tcp/bulk_parser.hpp"
#include "transport/tcp/control_out.hpp"
#include "transport/tcp/control_parser.hpp"
#include "transport/tcp/inbound.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;

// What one poll() may take from one connection, so that its lock is not held for long.
constexpr std::uint64_t kReadBudgetBytes = 4ull << 20;
// A peer that asks without reading the answers is not read any further beyond this.
constexpr std::size_t kMaxUnreadAnswerBytes = 1ull << 20;
constexpr int kMaxRounds = 64;

/// One socket of the link in the engine's epoll.
class Interest {
 public:
  /// `always`: events that are wanted even while nothing is read or written.
  explicit Interest(std::uint32_t always) : always_(always) {}
  Result<void> watch(Reactor& reactor, int fd, std::weak_ptr<FdHandler> handler) {
    const Lock lock(mutex_);
    fd_ = fd;
    reactor_ = &reactor;
    return reactor.watch(fd, mask(), std::move(handler));
  }
  void input(bool wanted) {
    if (input_.load(std::memory_order_relaxed) != wanted) set(input_, wanted);
  }
  // Under the lock even when nothing changes: whoever takes it back looks once more afterwards, and
  // must then see what the thread that asked for it has queued.
  void output(bool wanted) { set(output_, wanted); }
  [[nodiscard]] bool output() const { return output_.load(std::memory_order_relaxed); }
  void forget() {
    const Lock lock(mutex_);
    if (reactor_ != nullptr) reactor_->forget(fd_);
    reactor_ = nullptr;
  }

 private:
  void set(std::atomic<bool>& flag, bool wanted) {
    const Lock lock(mutex_);
    if (flag.exchange(wanted) != wanted && reactor_ != nullptr) reactor_->change(fd_, mask());
  }
  [[nodiscard]] std::uint32_t mask() const {
    return always_ | (input_ ? EPOLLIN : 0u) | (output_ ? EPOLLOUT : 0u);
  }

  const std::uint32_t always_;
  Mutex mutex_;
  Reactor* reactor_ TENDON_GUARDED_BY(mutex_) = nullptr;
  int fd_ TENDON_GUARDED_BY(mutex_) = -1;
  std::atomic<bool> input_{true};
  std::atomic<bool> output_{false};
};

// `lease` is zero for a peer that may be silent as long as it likes: TCP_USER_TIMEOUT also ends a
// connection whose peer is alive but does not read.
void set_options(int fd, std::chrono::milliseconds lease) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return;
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return;
  // Both are hints: a socket without them carries the same bytes, later.
  const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto timeout_ms = static_cast<unsigned>(lease.count());
  if (timeout_ms != 0) {
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
  }
}

// Closing a socket with unread input resets the connection, and the peer loses what it has not read
// yet.
void discard_input(int fd) {
  std::array<std::byte, 16384> scrap;  // NOLINT: never read
  for (int round = 0; round < 256; ++round) {
    if (recv(fd, scrap.data(), scrap.size(), MSG_DONTWAIT) <= 0) return;
  }
}

std::string seconds_text(Clock::duration duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

class TcpLinkOverSockets final : public TcpLink, private InboundHost {
 public:
  explicit TcpLinkOverSockets(TcpLinkOptions options);
  ~TcpLinkOverSockets() override;

  Result<void> add_lane(OwnedFd fd) override;
  [[nodiscard]] bool take_early(Bytes received);

  Result<std::shared_ptr<SlotLease>> acquire(std::uint64_t size_bytes) override;
  bool owns(const SlotLease& lease) const override { return &lease.pool() == pool_.get(); }
  Result<bool> send(SendOp& op, Deadline deadline) override;
  bool withdraw(SendOp& op) override;
  void post(const Descriptor& descriptor) override { post(descriptor, {}); }
  void post(const Descriptor& descriptor, Bytes body) override;
  bool drained() override { return control_out_.waiting_bytes() == 0 && bulk_out_.idle(); }
  bool delivers_at_once() const noexcept override { return false; }

  // Sockets tell epoll what they have; nothing else is visible without a system call.
  bool has_input() const noexcept override { return false; }
  bool poll() override TENDON_REQUIRES(receive_mutex());
  bool lend(const IncomingBody&) noexcept override TENDON_REQUIRES(receive_mutex()) { return true; }
  void drop_claims(std::uint32_t pipe) override TENDON_REQUIRES(receive_mutex()) {
    inbound_.drop_claims(pipe);
  }

  Result<void> start(Reactor& reactor, LinkObserver& observer) override;
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void tick(Clock::time_point now) override;
  void shut_down() override TENDON_REQUIRES(receive_mutex());
  // Unchecked: the counters of HeldBytes may be read at any time.
  LinkStats stats() const override TENDON_UNCHECKED_LOCKS;

  void on_ready(int fd, std::uint32_t events) override;

 protected:
  void on_failed(bool death_proved) override TENDON_REQUIRES(receive_mutex());

 private:
  struct Lane {
    Lane(OwnedFd socket_fd, Inbound& inbound) : fd(std::move(socket_fd)), parser(inbound) {}
    OwnedFd fd;
    BulkParser parser;
    Interest interest{EPOLLRDHUP};  // a parked lane must still see its end
    bool may_have_input = false;
    bool ended = false;           // everything before its end was read
    bool closed_by_peer = false;  // while it was parked
  };

  // InboundHost; on_room() may also come without receive_mutex(), once the link has ended.
  void deliver(Incoming incoming) override;
  MessageSink* receiver_of(std::uint32_t pipe) override {
    receive_mutex().assert_held();
    return sink_of(pipe);
  }
  Result<IncomingBody> allocate(std::uint64_t size_bytes) override;
  void answer(const Descriptor& descriptor) override { post(descriptor, {}); }
  Result<void> on_link_credit(std::uint64_t taken_bytes) override;
  void on_room() override {
    if (control_paused_.load(std::memory_order_relaxed)) control_interest_.output(true);
  }
  void on_open(const Descriptor& descriptor, Bytes ticket) override;

  [[nodiscard]] std::chrono::milliseconds socket_timeout() const {
    return expect_signs_of_life_ ? lease_ : std::chrono::milliseconds(0);
  }

  // Sending
  [[nodiscard]] Result<void> check_size(const Descriptor& descriptor) const;
  [[nodiscard]] Result<bool> send_inline(SendOp& op);
  [[nodiscard]] Result<bool> send_bulk(SendOp& op, Deadline deadline);
  void want_output() TENDON_REQUIRES(bulk_out_.mutex());

  // Receiving
  [[nodiscard]] bool paused() const noexcept TENDON_REQUIRES(receive_mutex()) {
    return !inbound_.may_take() || control_out_.waiting_bytes() > kMaxUnreadAnswerBytes;
  }
  bool read_everything() TENDON_REQUIRES(receive_mutex());
  bool read_control() TENDON_REQUIRES(receive_mutex());
  bool take_messages() TENDON_REQUIRES(receive_mutex());
  bool read_lane(Lane& lane) TENDON_REQUIRES(receive_mutex());
  void lane_ended(Lane& lane) TENDON_REQUIRES(receive_mutex());
  bool write_out() TENDON_REQUIRES(receive_mutex());
  void settle() TENDON_REQUIRES(receive_mutex());
  void refresh_interest() TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] Error lost(std::string_view how) const TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] Error lost(int error) const TENDON_REQUIRES(receive_mutex());
  void close_sockets() TENDON_REQUIRES(receive_mutex());

  const std::shared_ptr<SlotPool> pool_;
  const std::chrono::milliseconds lease_;
  const std::uint32_t expected_lanes_;
  const bool expect_signs_of_life_;
  const bool gives_signs_of_life_;
  OwnedFd control_ TENDON_GUARDED_BY(receive_mutex());
  Interest control_interest_{0};
  ControlOut control_out_;
  BulkOut bulk_out_;
  Reactor* reactor_ TENDON_GUARDED_BY(receive_mutex()) = nullptr;

  Inbound inbound_ TENDON_GUARDED_BY(receive_mutex());
  ControlParser parser_ TENDON_GUARDED_BY(receive_mutex());
  // Changed under both receive_mutex() and bulk_out_.mutex(), read under either.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> control_paused_{false};
  bool control_ended_ TENDON_GUARDED_BY(receive_mutex()) = false;
  bool closed_ TENDON_GUARDED_BY(receive_mutex()) = false;
  // How the link ends, once everything received was handed over.
  std::optional<Error> verdict_ TENDON_GUARDED_BY(receive_mutex());
  int rounds_with_ended_lane_ TENDON_GUARDED_BY(receive_mutex()) = 0;
  Clock::time_point last_heard_ TENDON_GUARDED_BY(receive_mutex()) = Clock::now();
  Clock::time_point last_tick_ TENDON_GUARDED_BY(receive_mutex()) = Clock::now();
  // Between the last two ticks.
  Clock::duration last_gap_ TENDON_GUARDED_BY(receive_mutex()){0};

  std::atomic<bool> shut_down_{false};
  // Time is read in tick() only; elsewhere it is enough to note that something happened since.
  std::atomic<bool> heard_{false};
  std::atomic<std::uint64_t> messages_sent_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};
  std::atomic<std::uint64_t> messages_received_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

TcpLinkOverSockets::TcpLinkOverSockets(TcpLinkOptions options)
    : TcpLink(std::move(options.path), std::move(options.peer), options.cap_bytes,
              options.peer_cap_bytes),
      pool_(std::move(options.pool)),
      lease_(options.lease),
      expected_lanes_(options.lanes),
      expect_signs_of_life_(options.expect_signs_of_life),
      gives_signs_of_life_(options.gives_signs_of_life),
      control_(std::move(options.control)),
      control_out_(control_.get()),
      bulk_out_(control_out_, options.peer_cap_bytes),
      inbound_(*this, options.cap_bytes),
      parser_(options.cap_bytes) {
  lanes_.reserve(kMaxStreamsPerLink);
  set_options(control_.get(), socket_timeout());
}

TcpLinkOverSockets::~TcpLinkOverSockets() {
  control_interest_.forget();
  if (control_) discard_input(control_.get());
  for (const auto& lane : lanes_) {
    lane->interest.forget();
    if (lane->fd) discard_input(lane->fd.get());
  }
}

bool TcpLinkOverSockets::take_early(Bytes received) {
  const Lock receiving(receive_mutex());
  const MutableBytes room = parser_.room();
  if (received.size() > room.size()) return false;
  if (received.empty()) return true;
  std::memcpy(room.data(), received.data(), received.size());
  parser_.on_received(received.size());
  // Nothing else would tell the engine that there is something to read.
  control_interest_.output(true);
  return true;
}

Result<void> TcpLinkOverSockets::start(Reactor& reactor, LinkObserver& observer) {
  const Lock receiving(receive_mutex());
  reactor_ = &reactor;
  observer_ = &observer;
  TENDON_CHECK(control_interest_.watch(reactor, control_.get(), weak_from_this()));
  for (const auto& lane : lanes_) {
    TENDON_CHECK(lane->interest.watch(reactor, lane->fd.get(), weak_from_this()));
  }
  return {};
}

Result<void> TcpLinkOverSockets::add_lane(OwnedFd fd) {
  const Lock receiving(receive_mutex());
  if (ended()) return end_error();
  if (lanes_.size() >= kMaxStreamsPerLink) {
    return Error{ErrorCode::limit_exceeded, "tcp.add_lane",
                 "link to " + peer_name() + ": a further bulk connection, at most " +
                     std::to_string(kMaxStreamsPerLink) + " are allowed"};
  }
  set_options(fd.get(), socket_timeout());
  auto lane = std::make_unique<Lane>(std::move(fd), inbound_);
  {
    const Lock sending(bulk_out_.mutex());
    TENDON_CHECK(bulk_out_.add_lane(lane->fd.get()));
    lanes_.push_back(std::move(lane));
  }
  Lane& added = *lanes_.back();
  // What waited for a lane goes out from the engine, whose callers are woken by it.
  if (!bulk_out_.idle()) added.interest.output(true);
  if (reactor_ == nullptr) return {};
  return added.interest.watch(*reactor_, added.fd.get(), weak_from_this());
}

// Sending

Result<std::shared_ptr<SlotLease>> TcpLinkOverSockets::acquire(std::uint64_t size_bytes) {
  if (ended()) return end_error();
  TENDON_TRY(slot, pool_->acquire(size_bytes));
  return make_recycled<SlotLease>(pool_, slot);
}

Result<void> TcpLinkOverSockets::check_size(const Descriptor& descriptor) const {
  // The payload first: the sum could overflow.
  if (descriptor.payload_bytes <= peer_cap_bytes() && descriptor.body_bytes() <= peer_cap_bytes()) {
    return {};
  }
  return Error{ErrorCode::message_too_large, "tcp.send",
               "a message of " + std::to_string(descriptor.payload_bytes) +
                   " payload bytes: peer " + peer_name() + " takes at most " +
                   std::to_string(peer_cap_bytes()) +
                   " bytes a message (its ContextOptions::link_cap_bytes)"};
}

Result<bool> TcpLinkOverSockets::send(SendOp& op, Deadline deadline) {
  if (ended()) return end_error();
  if (shut_down_.load(std::memory_order_acquire)) {
    return Error{ErrorCode::context_closed, "tcp.send",
                 "the link to " + peer_name() + " was shut down"};
  }
  TENDON_CHECK(check_size(op.descriptor));
  return travels_inline(op.descriptor.body_bytes()) ? send_inline(op) : send_bulk(op, deadline);
}

Result<bool> TcpLinkOverSockets::send_inline(SendOp& op) {
  if (bulk_out_.waiting_descriptors() != 0) {
    const Lock lock(bulk_out_.mutex());
    if (bulk_out_.holds_descriptor_of(op.descriptor.pipe)) {
      want_output();
      return false;
    }
  }
  if (TENDON_FAILPOINT("tcp.send.before_descriptor")) {
    return Error{ErrorCode::internal, "tcp.send", "failpoint tcp.send.before_descriptor"};
  }
  const bool taken = control_out_.try_send(op);
  if (control_out_.waiting_bytes() != 0) control_interest_.output(true);
  if (!taken) return false;
  op.done = true;
  messages_sent_.fetch_add(1, std::memory_order_relaxed);
  bytes_sent_.fetch_add(op.descriptor.body_bytes(), std::memory_order_relaxed);
  if (TENDON_FAILPOINT("tcp.send.after_descriptor")) {
    return Error{ErrorCode::internal, "tcp.send", "failpoint tcp.send.after_descriptor"};
  }
  return true;
}

Result<bool> TcpLinkOverSockets::send_bulk(SendOp& op, Deadline deadline) {
  for (;;) {
    {
      // Let go of between frames, so that several senders share the lanes.
      const Lock lock(bulk_out_.mutex());
      if (op.done) return true;
      if (ended()) return end_error();
      if (!bulk_out_.holds(op)) bulk_out_.enqueue(op);
      const BulkOut::Progress progress = bulk_out_.pump();
      if (op.done) {
        if (control_out_.waiting_bytes() != 0 || !bulk_out_.idle()) want_output();
        return true;
      }
      if (!progress.more) {
        want_output();
        return false;
      }
    }
    if (!deadline.is_poll() && deadline.has_passed()) {
      const Lock lock(bulk_out_.mutex());
      want_output();
      return Error{ErrorCode::timeout, "tcp.send",
                   "sending to " + peer_name() + ": the deadline passed after " +
                       std::to_string(op.done_bytes) + " of " +
                       std::to_string(op.descriptor.body_bytes()) + " bytes"};
    }
  }
}

// Something waits for the kernel: the engine is to call when it has room. Only poll() takes this
// back, so that whoever waits hears of what another thread finished.
void TcpLinkOverSockets::want_output() {
  if (control_out_.waiting_bytes() != 0) control_interest_.output(true);
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (bulk_out_.lane_waits(lane)) lanes_[lane]->interest.output(true);
  }
}

bool TcpLinkOverSockets::withdraw(SendOp& op) {
  if (travels_inline(op.descriptor.body_bytes())) return !op.done;  // taken whole or not at all
  const Lock lock(bulk_out_.mutex());
  if (op.done) return false;  // whoever leads wrote its end
  bulk_out_.withdraw(op);
  want_output();
  return true;
}

void TcpLinkOverSockets::post(const Descriptor& descriptor, Bytes body) {
  Descriptor complete = descriptor;
  if (!body.empty()) {
    complete.flags |= Descriptor::kInline;
    complete.segment_or_inline_bytes = static_cast<std::uint32_t>(complete.body_bytes());
  }
  control_out_.post(complete, body);
  if (control_out_.waiting_bytes() != 0) control_interest_.output(true);
}

// Receiving

void TcpLinkOverSockets::on_ready(int fd, std::uint32_t events) {
  const Lock receiving(receive_mutex());
  if (closed_) return;
  const bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (fd == control_.get()) {
    // Nothing can be read while paused, and this event would come again and again.
    if (hung_up && paused() && !verdict_) verdict_ = lost("the connection broke");
  }
  for (const auto& lane : lanes_) {
    if (fd != lane->fd.get()) continue;
    const bool closed = hung_up || (events & EPOLLRDHUP) != 0;
    if ((events & EPOLLIN) != 0 || closed) lane->may_have_input = true;
    if (!closed || !lane->parser.parked()) continue;
    // Nothing is read meanwhile, and this event would come again and again.
    lane->closed_by_peer = true;
    lane->interest.forget();
  }
  poll();
}

bool TcpLinkOverSockets::poll() {
  if (closed_ || ended()) return false;
  if (!verdict_ && control_out_.failure() != 0 && !inbound_.goodbye()) {
    verdict_ = lost(control_out_.failure());
  }
  bool moved = read_everything();
  moved |= write_out();
  settle();
  if (!closed_) refresh_interest();
  return moved;
}

bool TcpLinkOverSockets::read_everything() {
  bool moved = false;
  for (int round = 0; round < kMaxRounds; ++round) {
    bool now = read_control();
    for (const auto& lane : lanes_) {
      // A lane is silent unless a transfer is open; epoll knows of the exceptions.
      if (lane->may_have_input || inbound_.open_count() != 0) now |= read_lane(*lane);
    }
    moved |= now;
    const bool unpaused = control_paused_ && !paused();
    // Before the link ends everything that was received is handed over.
    const bool ending = verdict_.has_value() && verdict_->code == ErrorCode::peer_lost && now;
    if (!unpaused && !ending) break;
  }
  return moved;
}

bool TcpLinkOverSockets::read_control() {
  bool moved = take_messages();
  std::uint64_t budget = kReadBudgetBytes;
  while (!control_ended_ && !paused() && budget != 0) {
    if (verdict_ && verdict_->code != ErrorCode::peer_lost) break;
    const MutableBytes room = parser_.room();
    const ssize_t received = recv(control_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (received > 0) {
      const auto size = static_cast<std::size_t>(received);
      parser_.on_received(size);
      take_messages();
      moved = true;
      budget -= std::min<std::uint64_t>(budget, size);
      if (size < room.size()) break;
    } else if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
      break;
    } else {
      control_ended_ = true;
      control_interest_.forget();
      if (!inbound_.goodbye() && !verdict_) {
        verdict_ =
            received == 0 ? lost("the connection was closed without a goodbye") : lost(errno);
      }
      moved = true;
    }
  }
  control_paused_ = paused();
  if (moved) heard_.store(true, std::memory_order_relaxed);
  return moved;
}

bool TcpLinkOverSockets::take_messages() {
  bool moved = false;
  while (!paused()) {
    if (verdict_ && verdict_->code != ErrorCode::peer_lost) break;
    auto message = parser_.next();
    if (message && !*message) break;
    moved = true;
    const auto taken = message ? inbound_.on_message(**message) : Result<void>(message.error());
    if (taken) continue;
    verdict_ = taken.error().code == ErrorCode::protocol_violation
                   ? violation(taken.error().where, taken.error().detail)
                   : taken.error();
  }
  return moved;
}

bool TcpLinkOverSockets::read_lane(Lane& lane) {
  bool moved = false;
  auto parsed = lane.parser.resume();
  std::uint64_t budget = kReadBudgetBytes;
  while (parsed && !lane.ended && !lane.parser.parked() && budget != 0) {
    ReadTargets targets = lane.parser.targets();
    std::size_t offered = 0;
    for (std::size_t i = 0; i < targets.count; ++i) offered += targets.pieces[i].iov_len;
    msghdr message{};
    message.msg_iov = targets.pieces.data();
    message.msg_iovlen = targets.count;
    const ssize_t received = recvmsg(lane.fd.get(), &message, MSG_DONTWAIT);
    if (received > 0) {
      const auto size = static_cast<std::size_t>(received);
      parsed = lane.parser.on_received(size);
      moved = true;
      budget -= std::min<std::uint64_t>(budget, size);
      if (TENDON_FAILPOINT("tcp.recv.mid_bulk")) lane_ended(lane);
      if (size < offered) {
        lane.may_have_input = false;
        break;
      }
    } else if (received < 0 && errno == EAGAIN) {
      lane.may_have_input = false;
      break;
    } else if (received == 0 || errno != EINTR) {
      lane_ended(lane);
    }
  }
  if (!parsed && (!verdict_ || verdict_->code == ErrorCode::peer_lost)) {
    verdict_ = parsed.error().code == ErrorCode::protocol_violation
                   ? violation(parsed.error().where, parsed.error().detail)
                   : parsed.error();
  }
  if (moved) heard_.store(true, std::memory_order_relaxed);
  return moved;
}

// Not the end of the link yet: the goodbye travels on another connection and may still come. tick()
// ends it when it does not.
void TcpLinkOverSockets::lane_ended(Lane& lane) {
  lane.ended = true;
  lane.may_have_input = false;
  lane.interest.forget();
}

bool TcpLinkOverSockets::write_out() {
  bool moved = control_out_.flush();
  if (!bulk_out_.idle()) {
    // Whoever holds the lock is pumping already.
    if (bulk_out_.mutex().try_lock()) {
      const Lock lock(bulk_out_.mutex(), kAdoptLock);
      for (int round = 0; round < 4; ++round) {
        const BulkOut::Progress progress = bulk_out_.pump();
        moved |= progress.moved;
        if (!progress.more) break;
      }
    }
  }
  return moved;
}

void TcpLinkOverSockets::settle() {
  // After a goodbye no descriptor comes that a parked lane could wait for. A lane whose handshake
  // is under way may hold the bodies of all that was announced.
  const bool all_lanes_ended = lanes_.size() >= expected_lanes_ &&
                               std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
                                 return lane->ended || lane->parser.parked();
                               });
  // A goodbye explains why the connections end afterwards, but no other fault.
  const bool lost_only = verdict_ && verdict_->code == ErrorCode::peer_lost;
  if (verdict_ && !(lost_only && inbound_.goodbye())) {
    fail_locked(*verdict_, false);
  } else if (inbound_.goodbye()) {
    // Frames of messages sent before may still be under way on the other connections.
    if (inbound_.open_count() != 0 && !all_lanes_ended) return;
    close_sockets();
    end_in_order();
  }
}

void TcpLinkOverSockets::refresh_interest() {
  // What was read ahead while paused raises no event of its own: room for output does.
  const bool read_ahead = control_paused_ && !paused();
  control_interest_.input(!control_paused_ || read_ahead);
  if (control_interest_.output() || read_ahead) {
    control_interest_.output(control_out_.waiting_bytes() != 0 || read_ahead);
    if (control_out_.waiting_bytes() != 0) control_interest_.output(true);
  }
  bool any_output = false;
  for (const auto& lane : lanes_) {
    lane->interest.input(!lane->parser.parked());
    any_output |= lane->interest.output();
  }
  if (!any_output) return;
  if (!bulk_out_.mutex().try_lock()) return;
  const Lock lock(bulk_out_.mutex(), kAdoptLock);
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    lanes_[lane]->interest.output(bulk_out_.lane_waits(lane));
  }
}

void TcpLinkOverSockets::deliver(Incoming incoming) {
  receive_mutex().assert_held();
  messages_received_.fetch_add(1, std::memory_order_relaxed);
  if (incoming.place() != IncomingBody::Place::nowhere) {
    bytes_received_.fetch_add(incoming.descriptor.body_bytes(), std::memory_order_relaxed);
  }
  dispatch(std::move(incoming));
  dropped_.store(dropped_messages_, std::memory_order_relaxed);
}

Result<IncomingBody> TcpLinkOverSockets::allocate(std::uint64_t size_bytes) {
  IncomingBody body;
  body.place = IncomingBody::Place::pool_slot;
  if (auto slot = pool_->acquire(size_bytes)) {
    body.data = slot->memory.data();
    body.owner = make_recycled<SlotLease>(pool_, *slot);
    return body;
  }
  // The user keeps what it received, or the pool is smaller than the link's cap: private memory it
  // is.
  TENDON_TRY(storage, Storage::allocate(size_bytes));
  body.data = storage.data();
  body.owner = storage.owner();
  return body;
}

Result<void> TcpLinkOverSockets::on_link_credit(std::uint64_t taken_bytes) {
  const Lock lock(bulk_out_.mutex());
  if (bulk_out_.on_taken(taken_bytes)) return {};
  return Error{ErrorCode::protocol_violation, "tcp.credit",
               "it took " + std::to_string(taken_bytes) + " bytes, more than was announced to it"};
}

void TcpLinkOverSockets::on_open(const Descriptor& descriptor, Bytes ticket) {
  if (observer_ != nullptr) observer_->on_open(*this, descriptor, ticket);
}

// Life

// Who was stopped longer than its peer waits finds a broken connection, and looks for the fault at
// the peer unless it is told.
Error TcpLinkOverSockets::lost(std::string_view how) const {
  Error result{ErrorCode::peer_lost, "tcp.receive", "peer " + peer_name() + ": "};
  result.detail += how;
  const auto away = std::max(Clock::now() - last_tick_, last_gap_);
  if (gives_signs_of_life_ && away >= kSuspectAfter) {
    result.detail += "; nothing ran here for " + seconds_text(away) +
                     " (was this process stopped?), so the peer may have taken it for lost";
  }
  return result;
}

Error TcpLinkOverSockets::lost(int error) const {
  Error result = lost("the connection broke: " + std::string(std::strerror(error)));
  result.system_errno = error;
  return result;
}

void TcpLinkOverSockets::tick(Clock::time_point now) {
  const Lock receiving(receive_mutex());
  if (closed_ || ended()) return;
  // This process may have slept through the lease while words of the peer lie in the socket.
  last_gap_ = now - std::exchange(last_tick_, now);
  poll();
  if (closed_ || ended()) return;
  if (heard_.exchange(false, std::memory_order_relaxed)) last_heard_ = now;

  const bool lane_broke =
      bulk_out_.failure() != 0 || std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
        return lane->ended || lane->closed_by_peer;
      });
  // While the control lane waits for the program, a goodbye may lie unread in it.
  const bool reads_control = inbound_.may_take();
  if (lane_broke && reads_control && !inbound_.goodbye() && ++rounds_with_ended_lane_ > 1) {
    fail_locked(lost("a bulk connection was closed without a goodbye"), false);
    return;
  }
  if (!reads_control) last_heard_ = now;
  const auto silence = now - last_heard_;
  if (inbound_.goodbye() && silence >= lease_) {
    fail_locked(lost("it said goodbye, and nothing came for " + seconds_text(silence) + " of " +
                     std::to_string(inbound_.open_count()) + " messages that are not complete"),
                false);
    return;
  }
  suspect_ = expect_signs_of_life_ && silence >= std::min<Clock::duration>(kSuspectAfter, lease_);
  if (expect_signs_of_life_ && silence >= lease_) {
    fail_locked(lost("no sign of life for " + seconds_text(silence) + " (lease " +
                     seconds_text(lease_) + ")"),
                false);
    return;
  }
  // One word a tick, whatever else is said: the peer's lease is not known here. What waits is a
  // word as well.
  if (control_out_.waiting_bytes() == 0) post(Descriptor{.kind = MessageKind::ping}, {});
}

void TcpLinkOverSockets::on_failed(bool) { close_sockets(); }

void TcpLinkOverSockets::close_sockets() {
  if (closed_) return;
  closed_ = true;
  control_paused_ = false;
  inbound_.abort_all();
  control_interest_.forget();
  for (const auto& lane : lanes_) lane->interest.forget();
  const Lock lock(bulk_out_.mutex());
  bulk_out_.stop();
  control_out_.stop();
  control_.reset();
  lanes_.clear();
}

void TcpLinkOverSockets::shut_down() {
  if (shut_down_.exchange(true, std::memory_order_acq_rel)) return;
  if (!closed_) write_out();
  {
    // Other threads may still send: nothing of theirs is announced behind the goodbye.
    const Lock lock(bulk_out_.mutex());
    control_out_.post_last(Descriptor{.kind = MessageKind::goodbye});
    bulk_out_.stop();
  }
  if (closed_) return;
  control_out_.flush();
  closed_ = true;
  inbound_.abort_all();
  control_interest_.forget();
  control_out_.stop();
  // What the kernel holds still leaves; the sockets themselves are closed with the link.
  shutdown(control_.get(), SHUT_WR);
  for (const auto& lane : lanes_) {
    lane->interest.forget();
    shutdown(lane->fd.get(), SHUT_WR);
  }
}

LinkStats TcpLinkOverSockets::stats() const {
  LinkStats stats;
  stats.slots = pool_->stats();
  stats.messages_sent = messages_sent_.load(std::memory_order_relaxed) + bulk_out_.sent_messages();
  stats.bytes_sent = bytes_sent_.load(std::memory_order_relaxed) + bulk_out_.sent_bytes();
  stats.messages_received = messages_received_.load(std::memory_order_relaxed);
  stats.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  stats.dropped_messages = dropped_.load(std::memory_order_relaxed);
  stats.held_bytes = inbound_.small().bytes() + inbound_.large().bytes();
  stats.most_held_bytes = inbound_.small().most_bytes() + inbound_.large().most_bytes();
  stats.untaken_bytes = bulk_out_.untaken_bytes();
  return stats;
}

}  // namespace

Result<std::shared_ptr<TcpLink>> make_tcp_link(TcpLinkOptions options) {
  if (!options.control || options.pool == nullptr) {
    return Error{ErrorCode::invalid_argument, "tcp.make",
                 "a link needs a connected socket and a pool"};
  }
  const std::vector<std::byte> received = std::move(options.received_already);
  auto link = std::make_shared<TcpLinkOverSockets>(std::move(options));
  if (!link->take_early(received)) {
    return Error{ErrorCode::protocol_violation, "tcp.make",
                 "peer " + link->peer_name() + ": " + std::to_string(received.size()) +
                     " bytes came with the handshake, at most " +
                     std::to_string(ControlParser::kBufferBytes) + " are read ahead"};
  }
  return std::shared_ptr<TcpLink>(std::move(link));
}

}  // namespace tendon::v0::detail
