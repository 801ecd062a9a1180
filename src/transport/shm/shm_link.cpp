// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_link.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <new>
#include <tendon/observe/log.hpp>
#include <tendon/session/limits.hpp>

#include "core/failpoint.hpp"
#include "memory/claim.hpp"
#include "memory/recycler.hpp"
#include "transport/private_body.hpp"
#include "transport/shm/control_block.hpp"
#include "transport/shm/peer_segments.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kPieceBytes = 1ull << 20;
constexpr std::uint64_t kRoomStep = ControlBlock::kArenaBytes / 8;
// A peer that leaves more than this of answers unread is not read any further.
constexpr std::size_t kMaxUnreadAnswerBytes = 1ull << 20;
// No count of consumed entries: nobody waits for room.
constexpr std::uint64_t kNotBlocked = ~std::uint64_t{0};

bool process_ended(int pidfd) {
  pollfd wanted{pidfd, POLLIN, 0};
  return pidfd >= 0 && ::poll(&wanted, 1, 0) == 1;
}

class ShmLink final : public Link {
 public:
  explicit ShmLink(ShmLinkOptions options);
  ~ShmLink() override;

  Result<std::shared_ptr<SlotLease>> acquire(std::uint64_t size_bytes) override;
  bool owns(const SlotLease& lease) const override { return &lease.pool() == pool_.get(); }
  Result<bool> send(SendOp& op, Deadline deadline) override;
  bool withdraw(SendOp& op) override;
  void post(const Descriptor& descriptor) override { post(descriptor, {}); }
  void post(const Descriptor& descriptor, Bytes body) override;
  void prefault(std::uint64_t size_bytes) override;
  Result<bool> publish_segment(std::uint32_t pipe, std::uint32_t id,
                               const Segment& segment) override;
  void ring_for_flags() noexcept override;
  bool kill_peer() noexcept override;
  bool drained() override;
  bool delivers_at_once() const noexcept override { return true; }

  // Unchecked: RingConsumer::has_entry() may be called by anyone.
  bool has_input() const noexcept override TENDON_UNCHECKED_LOCKS;
  bool poll() override TENDON_REQUIRES(receive_mutex());
  bool lend(const IncomingBody& body) noexcept override TENDON_REQUIRES(receive_mutex());

  Result<void> start(Reactor& reactor, LinkObserver& observer) override;
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override { my_sleep_.awake(); }
  void tick(std::chrono::steady_clock::time_point now) override;
  void shut_down() override TENDON_REQUIRES(receive_mutex());
  LinkStats stats() const override;

  void on_ready(int fd, std::uint32_t events) override;

 protected:
  void on_failed(bool death_proved) override TENDON_REQUIRES(receive_mutex());

 private:
  struct Posted {
    Descriptor descriptor;
    std::vector<std::byte> body;
  };

  // Sending
  bool take_returns(SlotPool::Ledger& ledger) TENDON_REQUIRES(pool_->mutex());
  [[nodiscard]] bool room_since(std::uint64_t blocked_at) const noexcept;
  // Unchecked for the same reason as has_input().
  [[nodiscard]] bool returns_wait() const noexcept TENDON_UNCHECKED_LOCKS {
    return waiting_for_returns.load(std::memory_order_relaxed) != 0 && returned_.has_entry();
  }
  Result<bool> publish(Descriptor descriptor, const SendOp* op, Bytes body)
      TENDON_REQUIRES(pool_->mutex());
  bool place_inline(Descriptor& descriptor) TENDON_REQUIRES(pool_->mutex());
  Result<bool> announce_segments(const SlotPool::Ledger& ledger) TENDON_REQUIRES(pool_->mutex());
  Result<bool> pass(Descriptor descriptor, const Segment& segment) TENDON_REQUIRES(pool_->mutex());
  bool flush_posted() TENDON_REQUIRES(pool_->mutex());

  // Receiving
  enum class Pause : std::uint8_t { heeded, ignored };
  [[nodiscard]] bool may_take() const noexcept;
  int take_messages(int most_count, Pause pause) TENDON_REQUIRES(receive_mutex());
  Result<void> take_in(const Descriptor& descriptor) TENDON_REQUIRES(receive_mutex());
  Result<IncomingBody> body_of(const Descriptor& descriptor) TENDON_REQUIRES(receive_mutex());
  Result<void> read_announcements() TENDON_REQUIRES(receive_mutex()) {
    return as_violation(segments_.read(socket_.get()));
  }
  template <class T>
  [[nodiscard]] Result<T> as_violation(Result<T> result) const;
  void on_room() noexcept;
  void end(bool death_proved) TENDON_REQUIRES(receive_mutex());

  std::shared_ptr<ShmMemory> memory_;
  std::shared_ptr<SlotPool> pool_;
  OwnedFd socket_;
  OwnedFd peer_process_;
  const bool expect_signs_of_life_;
  Reactor* reactor_ = nullptr;
  SleepWord<> my_sleep_;

  // Under the lock of the pool's ledger: a slot is marked and shown in one step.
  RingProducer<Descriptor> outgoing_ TENDON_GUARDED_BY(pool_->mutex());
  RingConsumer<ReturnEntry> returned_ TENDON_GUARDED_BY(pool_->mutex());
  // By ring place.
  std::array<std::uint64_t, ControlBlock::kMessageCount> arena_end_
      TENDON_GUARDED_BY(pool_->mutex()){};
  std::uint64_t arena_tail_ TENDON_GUARDED_BY(pool_->mutex()) = 0;
  // Everything before it was consumed.
  std::uint64_t arena_head_ TENDON_GUARDED_BY(pool_->mutex()) = 0;
  std::uint32_t announced_segments_ TENDON_GUARDED_BY(pool_->mutex()) = 0;
  std::deque<Posted> posted_ TENDON_GUARDED_BY(pool_->mutex());
  std::atomic<std::size_t> posted_bytes_{0};
  // What the peer had consumed when there was no room.
  std::atomic<std::uint64_t> blocked_at_head_{kNotBlocked};
  // The peer's counters or returns made no sense: poll() fails the link.
  std::atomic<bool> broken_{false};
  std::atomic<std::uint64_t> messages_sent_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};

  RingConsumer<Descriptor> incoming_ TENDON_GUARDED_BY(receive_mutex());
  PeerSegments segments_ TENDON_GUARDED_BY(receive_mutex());
  HeldBytes small_;
  std::atomic<bool> paused_{false};  // the ring is not read: see may_take()
  std::atomic<std::uint64_t> messages_received_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<std::uint64_t> next_inline_{0};  // where in the arena the next body probably lies
  // In arena bytes, since the peer's sleep word was last looked at.
  std::uint64_t room_made_ TENDON_GUARDED_BY(receive_mutex()) = 0;

  std::uint64_t last_beat_ TENDON_GUARDED_BY(receive_mutex()) = 0;
  std::chrono::steady_clock::time_point last_sign_ TENDON_GUARDED_BY(receive_mutex()) =
      std::chrono::steady_clock::now();
};

ShmLink::ShmLink(ShmLinkOptions options)
    : Link(std::move(options.path), std::move(options.peer), options.cap_bytes,
           options.peer_cap_bytes),
      memory_(std::make_shared<ShmMemory>(
          options.mine, options.theirs, std::move(options.peer_doorbell), options.peer_cap_bytes)),
      pool_(std::make_shared<SlotPool>("link to " + peer_name(), options.cap_bytes)),
      socket_(std::move(options.socket)),
      peer_process_(std::move(options.peer_process)),
      expect_signs_of_life_(options.expect_signs_of_life),
      my_sleep_(memory_->mine().sleeping),
      outgoing_(memory_->mine().messages, memory_->mine().message_entries),
      returned_(memory_->theirs().returns, memory_->theirs().return_entries),
      incoming_(memory_->theirs().messages, memory_->theirs().message_entries),
      segments_(peer_name(), options.peer_cap_bytes, memory_,
                [this](std::uint32_t pipe)
                    TENDON_REQUIRES(receive_mutex()) { return sink_of(pipe); }),
      small_(private_limit_bytes(options.cap_bytes), [this] { on_room(); }) {}

ShmLink::~ShmLink() {
  if (reactor_ == nullptr) return;
  if (socket_) reactor_->forget(socket_.get());
  if (peer_process_) reactor_->forget(peer_process_.get());
}

Result<void> ShmLink::start(Reactor& reactor, LinkObserver& observer) {
  reactor_ = &reactor;
  observer_ = &observer;
  const auto self = weak_from_this();
  TENDON_CHECK(reactor.watch(socket_.get(), EPOLLIN | EPOLLRDHUP, self));
  return reactor.watch(peer_process_.get(), EPOLLIN, self);
}

// Sending

bool ShmLink::take_returns(SlotPool::Ledger& ledger) {
  if (!returned_.has_entry()) return false;
  ReturnEntry entry;
  // What a peer adds meanwhile is for the next time.
  for (std::size_t count = 0; count < ControlBlock::kReturnCount && returned_.pop(entry); ++count)
    ledger.take_return({entry.segment, entry.slot, entry.generation});
  returned_.release();
  if (returned_.corrupt()) broken_ = true;
  return true;
}

Result<std::shared_ptr<SlotLease>> ShmLink::acquire(std::uint64_t size_bytes) {
  if (ended()) return end_error();
  // The return ring lies in the peer's cache: while there is a warm slot it is not looked at here,
  // but in send(), when the peer is busy with the message.
  auto ledger = pool_->ledger();
  if (auto warm = ledger.acquire_warm(size_bytes)) return make_recycled<SlotLease>(pool_, *warm);
  take_returns(ledger);
  TENDON_TRY(slot, ledger.acquire(size_bytes));
  return make_recycled<SlotLease>(pool_, slot);
}

Result<bool> ShmLink::send(SendOp& op, Deadline deadline) {
  if (ended()) return end_error();
  const std::uint64_t body_bytes = op.descriptor.body_bytes();
  if (op.lease == nullptr && body_bytes <= kMaxInlineBytes) {
    const auto ledger = pool_->ledger();
    if (!flush_posted()) return false;
    TENDON_TRY(published, publish(op.descriptor, &op, {}));
    op.done = published;
    return published;
  }
  if (op.lease == nullptr) {
    auto lease = acquire(body_bytes);
    // The peer's returns make room below the cap. What the system refuses they do not bring.
    if (!lease && lease.error().code == ErrorCode::resource_exhausted &&
        lease.error().system_errno == 0)
      return false;
    if (!lease) return std::move(lease).error();
    op.own_lease = *std::move(lease);
    op.lease = op.own_lease.get();
    op.done_bytes = 0;
    op.staged = false;
  }
  // The copy is made without the sending lock, so that other pipes go on meanwhile.
  while (!op.staged) {
    if (op.done_bytes != 0 && deadline.has_passed()) {
      return Error{ErrorCode::timeout, "shm.send",
                   "sending to " + peer_name() + ": the deadline passed after " +
                       std::to_string(op.done_bytes) + " of " + std::to_string(body_bytes) +
                       " bytes; nothing was delivered"};
    }
    const std::uint64_t piece = std::min(kPieceBytes, body_bytes - op.done_bytes);
    copy_body(op, op.done_bytes, op.lease->slot().memory.subspan(op.done_bytes, piece), body_bytes);
    op.done_bytes += piece;
    op.staged = op.done_bytes == body_bytes;
    (void)TENDON_FAILPOINT("shm.send.mid_copy");
  }
  (void)TENDON_FAILPOINT("shm.send.slot_loaned");
  Descriptor descriptor = op.descriptor;
  const SlotId id = op.lease->slot().id;
  descriptor.segment_or_inline_bytes = id.segment;
  descriptor.slot = id.slot;
  descriptor.generation = id.generation;
  descriptor.offset = 0;
  auto ledger = pool_->ledger();
  // The link may have ended during the copy. Its end frees or quarantines what was sent until then
  // and holds this lock once after it said so: what is marked sent below is part of that, or is not
  // marked at all.
  if (ended()) return end_error();
  TENDON_TRY(announced, announce_segments(ledger));
  if (!announced || !flush_posted()) return false;
  if (!op.lease->mark_sent(ledger)) {
    return Error{ErrorCode::internal, "shm.send", "a slot that is not loaned was to be sent"};
  }
  auto published = publish(descriptor, nullptr, {});
  if (!published || !*published) {
    op.lease->unmark_sent(ledger);
    return published;
  }
  op.lease = nullptr;
  op.own_lease.reset();
  op.done = true;
  take_returns(ledger);
  return true;
}

// Shows one descriptor to the peer, with its inline body from `op` or `body`. False when there is
// no room. Callers flush what was posted before.
Result<bool> ShmLink::publish(Descriptor descriptor, const SendOp* op, Bytes body) {
  if (broken_) return violation("shm.send", "its counters in shared memory make no sense");
  const bool is_inline = op != nullptr || !body.empty();
  if (outgoing_.full()) {
    if (outgoing_.corrupt()) broken_ = true;
    blocked_at_head_ = outgoing_.seen_head();
    return false;
  }
  if (is_inline) {
    if (!place_inline(descriptor)) {
      if (outgoing_.corrupt()) broken_ = true;
      return false;
    }
    const MutableBytes place =
        MutableBytes(memory_->mine().arena).subspan(descriptor.offset, descriptor.body_bytes());
    if (op != nullptr)
      copy_body(*op, 0, place);
    else if (!body.empty())
      std::memcpy(place.data(), body.data(), body.size());
  }
  arena_end_[outgoing_.tail() % ControlBlock::kMessageCount] = arena_tail_;
  (void)outgoing_.stage(descriptor);  // not full: looked above
  if (TENDON_FAILPOINT("shm.send.before_publish")) {
    outgoing_.unstage();
    return Error{ErrorCode::internal, "shm.send", "failpoint shm.send.before_publish"};
  }
  outgoing_.publish();
  (void)TENDON_FAILPOINT("shm.send.after_publish");
  add(messages_sent_, 1);
  add(bytes_sent_, descriptor.body_bytes());
  if (memory_->peer_sleep().asleep(SleepWord<>::kForMessages)) memory_->ring_doorbell();
  return true;
}

// The arena is a ring of bytes whose consumer is the ring of descriptors: what lies before the end
// of the last consumed descriptor is free. A body never wraps.
bool ShmLink::place_inline(Descriptor& descriptor) {
  const std::uint64_t size = (descriptor.body_bytes() + 63) / 64 * 64;
  const std::uint64_t room_to_end =
      ControlBlock::kArenaBytes - arena_tail_ % ControlBlock::kArenaBytes;
  const std::uint64_t begin = size <= room_to_end ? arena_tail_ : arena_tail_ + room_to_end;
  if (begin + size - arena_head_ > ControlBlock::kArenaBytes) {
    if (const std::uint64_t consumed = outgoing_.consumed(); consumed != 0)
      arena_head_ = arena_end_[(consumed - 1) % ControlBlock::kMessageCount];
    if (begin + size - arena_head_ > ControlBlock::kArenaBytes) {
      blocked_at_head_ = outgoing_.seen_head();
      return false;
    }
  }
  descriptor.flags |= Descriptor::kInline;
  descriptor.segment_or_inline_bytes = static_cast<std::uint32_t>(descriptor.body_bytes());
  descriptor.offset = begin % ControlBlock::kArenaBytes;
  arena_tail_ = begin + size;
  return true;
}

Result<bool> ShmLink::announce_segments(const SlotPool::Ledger& ledger) {
  const std::uint32_t count = pool_->segment_count();
  if (announced_segments_ == count) return true;
  for (const SegmentInfo& info : ledger.segments_from(announced_segments_)) {
    Descriptor descriptor;
    descriptor.kind = MessageKind::segment;
    descriptor.segment_or_inline_bytes = info.id;
    descriptor.slot = info.slot_count;
    descriptor.payload_bytes = info.slot_bytes;
    TENDON_TRY(sent, pass(descriptor, *info.segment));
    if (!sent) return false;
    (void)TENDON_FAILPOINT("shm.announce.after_send");
    info.segment->release_fd();
    announced_segments_ = info.id + 1;
  }
  return true;
}

// Hands a descriptor of memory to the peer. False: not now.
Result<bool> ShmLink::pass(Descriptor descriptor, const Segment& segment) {
  iovec io{&descriptor, sizeof descriptor};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = segment.fd();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS)) return false;
  if (sent != static_cast<ssize_t>(sizeof descriptor)) {
    return Error{ErrorCode::peer_lost, "shm.announce",
                 "peer " + peer_name() + " is gone: " + std::strerror(errno), errno};
  }
  return true;
}

Result<bool> ShmLink::publish_segment(std::uint32_t pipe, std::uint32_t id,
                                      const Segment& segment) {
  if (ended()) return end_error();
  Descriptor descriptor;
  descriptor.kind = MessageKind::segment;
  descriptor.pipe = pipe;
  descriptor.segment_or_inline_bytes = id;
  descriptor.payload_bytes = segment.size_bytes();
  const auto ledger = pool_->ledger();  // the socket's lock
  return pass(descriptor, segment);
}

bool ShmLink::kill_peer() noexcept {
  const auto ledger = pool_->ledger();  // the descriptor's lock
  return syscall(SYS_pidfd_send_signal, peer_process_.get(), SIGKILL, nullptr, 0) == 0;
}

void ShmLink::ring_for_flags() noexcept {
  if (memory_->peer_sleep().asleep(SleepWord<>::kForFlags)) memory_->ring_doorbell();
}

bool ShmLink::withdraw(SendOp& op) {
  // Only send() publishes. The slot alone goes back, unless the user's loan holds it.
  op.lease = nullptr;
  op.own_lease.reset();
  return !op.done;
}

void ShmLink::post(const Descriptor& descriptor, Bytes body) {
  if (ended()) return;
  const auto ledger = pool_->ledger();
  if (flush_posted()) {
    const auto published = publish(descriptor, nullptr, body);
    if (!published || *published) return;  // a broken link is failed by poll()
  }
  posted_.push_back({descriptor, {body.begin(), body.end()}});
  posted_bytes_ += sizeof(Posted) + body.size();
}

// What was posted first goes first. False while something is left.
bool ShmLink::flush_posted() {
  while (!posted_.empty()) {
    const Posted& next = posted_.front();
    if (const auto published = publish(next.descriptor, nullptr, next.body);
        published && !*published)
      return false;
    posted_bytes_ -= sizeof(Posted) + next.body.size();
    posted_.pop_front();  // published, or the link is broken and poll() fails it
  }
  return true;
}

void ShmLink::prefault(std::uint64_t size_bytes) {
  // Two slots: one is read while the other is filled.
  const auto touched = pool_->prefault(size_bytes, 2, [this] { return !ended(); });
  if (!touched) log(LogLevel::info, "shm.prefault", touched.error().detail);
}

bool ShmLink::drained() {
  const auto ledger = pool_->ledger();
  return flush_posted();
}

// Receiving

bool ShmLink::has_input() const noexcept {
  SharedMemoryPolicy::prefetch(
      &memory_->theirs().arena[next_inline_.load(std::memory_order_relaxed)]);
  if (incoming_.has_entry() && !paused_.load(std::memory_order_relaxed)) return true;
  if (returns_wait()) return true;
  return room_since(blocked_at_head_.load(std::memory_order_relaxed));
}

// Somebody could not send for want of room, and the peer has consumed something since.
bool ShmLink::room_since(std::uint64_t blocked_at) const noexcept {
  return blocked_at != kNotBlocked &&
         memory_->mine().messages.head.load(std::memory_order_acquire) != blocked_at;
}

// Not while the program leaves so many small messages, or the peer so many answers, where they are.
bool ShmLink::may_take() const noexcept {
  return small_.has_room(kMaxInlineBytes) &&
         posted_bytes_.load(std::memory_order_relaxed) <= kMaxUnreadAnswerBytes;
}

// The program took something: the ring may be read again. Nothing else tells the engine.
void ShmLink::on_room() noexcept {
  if (!paused_.load(std::memory_order_relaxed) || reactor_ == nullptr || !socket_) return;
  reactor_->change(socket_.get(), EPOLLIN | EPOLLRDHUP | EPOLLOUT);
}

// Returns how many there were. May end the link.
int ShmLink::take_messages(int most_count, Pause pause) {
  Descriptor descriptor;
  int count = 0;
  while (count < most_count && (pause == Pause::ignored || may_take()) &&
         incoming_.pop(descriptor)) {
    ++count;
    const auto taken = take_in(descriptor);
    incoming_.release();
    if (!taken) fail_locked(taken.error(), false);
    if (ended()) break;
  }
  return count;
}

bool ShmLink::poll() {
  if (ended()) return false;
  // A bound on one call, so that a flood on one link does not keep the others waiting.
  constexpr int kMostMessages = 128;
  if (posted_bytes_.load(std::memory_order_relaxed) != 0) {
    const auto ledger = pool_->ledger();
    flush_posted();
  }
  const int count = take_messages(kMostMessages, Pause::heeded);
  if (ended()) return true;
  paused_.store(!may_take(), std::memory_order_relaxed);
  bool moved = count != 0;
  if (incoming_.corrupt() || broken_) {
    fail_locked(violation("shm.poll", "its counters in shared memory make no sense"), false);
    return true;
  }
  // The peer may sleep for want of room. It goes to sleep only while ring or arena is full, so
  // looking once per kRoomStep of what is freed, not at every message, cannot miss it.
  room_made_ +=
      static_cast<std::uint64_t>(count) * (ControlBlock::kArenaBytes / ControlBlock::kMessageCount);
  if (room_made_ >= kRoomStep) {
    room_made_ = 0;
    if (memory_->peer_sleep().asleep(SleepWord<>::kForMessages)) memory_->ring_doorbell();
  }
  // Whatever has_input() answers true for is used up here and counts as moved: else whoever leads
  // would look again and again without waking those it concerns.
  if (returns_wait()) {
    auto ledger = pool_->ledger();
    moved |= take_returns(ledger);
  }
  std::uint64_t blocked_at = blocked_at_head_.load(std::memory_order_relaxed);
  if (room_since(blocked_at))
    moved |= blocked_at_head_.compare_exchange_strong(blocked_at, kNotBlocked);
  return moved;
}

Result<void> ShmLink::take_in(const Descriptor& descriptor) {
  if (const auto wrong = check_descriptor(descriptor, peer_cap_bytes()); !wrong.empty()) {
    return violation("shm.receive", "message of kind " + std::to_string(int(descriptor.kind)) +
                                        ": " + std::string(wrong));
  }
  add(messages_received_, 1);
  add(bytes_received_, descriptor.body_bytes());
  switch (descriptor.kind) {
    case MessageKind::segment:
      return violation("shm.receive", "a segment announced in the ring");
    case MessageKind::goodbye:
      // What it published before is not in the ring, and may be needed to finish with it.
      TENDON_CHECK(read_announcements());
      end_in_order();
      end(false);
      return {};
    case MessageKind::ping:
      return {};
    case MessageKind::open:
    case MessageKind::end:
    case MessageKind::cancel:
    case MessageKind::error:
      // What it published before is not in the ring, and is for a pipe that these may end.
      TENDON_CHECK(read_announcements());
      break;
    default:
      break;
  }
  TENDON_TRY(body, body_of(descriptor));
  if (body.failure() != nullptr) log(LogLevel::warn, "shm.receive", body.failure()->detail);
  if (descriptor.kind == MessageKind::open) {
    if (body.failure() != nullptr) return *body.failure();
    if (observer_ != nullptr)
      observer_->on_open(*this, descriptor, {body.data, descriptor.body_bytes()});
    return {};
  }
  (void)TENDON_FAILPOINT("shm.receive.before_take");
  Incoming incoming{descriptor, std::move(body), nullptr};
  if (incoming.place() == IncomingBody::Place::private_copy)
    incoming.held = HeldBytes::Share(small_, private_cost_bytes(descriptor.body_bytes()));
  dispatch(std::move(incoming));
  dropped_.store(dropped_messages_, std::memory_order_relaxed);
  return {};
}

Result<IncomingBody> ShmLink::body_of(const Descriptor& descriptor) {
  const std::uint64_t size = descriptor.body_bytes();
  if (size == 0) return IncomingBody{};
  switch (descriptor.kind) {
    case MessageKind::data:
    case MessageKind::bytes:
    case MessageKind::schema:
    case MessageKind::error:
    case MessageKind::open:
      break;
    default:
      return IncomingBody{};  // check_descriptor() saw that there is none
  }
  if (descriptor.is_inline()) {
    // size <= kMaxInlineBytes: check_descriptor()
    if (descriptor.offset > ControlBlock::kArenaBytes - size)
      return violation("shm.receive", "an inline body outside the arena");
    IncomingBody body = make_private_body(size);
    next_inline_.store((descriptor.offset + size + 63) / 64 * 64 % ControlBlock::kArenaBytes,
                       std::memory_order_relaxed);
    room_made_ += size;
    std::memcpy(body.data, memory_->theirs().arena.data() + descriptor.offset, size);
    return body;
  }
  return as_violation(segments_.body_of(descriptor, socket_.get()));
}

bool ShmLink::lend(const IncomingBody& body) noexcept {
  if (body.place != IncomingBody::Place::peer_slot) return true;
  auto* slot = const_cast<ReceivedSlot*>(static_cast<const ReceivedSlot*>(body.owner.get()));
  return slot->lend();
}

// Life

void ShmLink::announce_sleep() noexcept {
  std::uint64_t what = SleepWord<>::kForMessages;
  if (waiting_for_returns.load(std::memory_order_relaxed) != 0) what |= SleepWord<>::kForReturns;
  if (waiting_for_flags.load(std::memory_order_relaxed) != 0) what |= SleepWord<>::kForFlags;
  my_sleep_.announce(what);
}

void ShmLink::tick(std::chrono::steady_clock::time_point now) {
  // The service thread and a caller that leads may both be here.
  const Lock receiving(receive_mutex());
  memory_->mine().beat.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t beat = memory_->theirs().beat.load(std::memory_order_relaxed);
  if (beat != last_beat_) {
    last_beat_ = beat;
    last_sign_ = now;
  }
  suspect_ = expect_signs_of_life_ && now - last_sign_ >= kSuspectAfter;
}

void ShmLink::on_ready(int fd, std::uint32_t events) {
  const Lock receiving(receive_mutex());
  // What was published before the end is delivered first; its memory is held by our mapping. The
  // end may be a lie, and the peer may go on publishing: it is one ring at most.
  if (fd == peer_process_.get()) {
    if (!ended()) {
      (void)read_announcements();
      (void)take_messages(ControlBlock::kMessageCount, Pause::ignored);
    }
    fail_locked(Error{ErrorCode::peer_lost, "shm.death", "peer " + peer_name() + " died"}, true);
    return;
  }
  if (ended()) return;
  if ((events & EPOLLOUT) != 0) reactor_->change(socket_.get(), EPOLLIN | EPOLLRDHUP);
  if (const auto read = read_announcements(); !read) {
    fail_locked(read.error(), false);
    return;
  }
  char byte = 0;
  const ssize_t peeked = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool closed = peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EINTR);
  if (!closed) {
    if ((events & EPOLLOUT) != 0) poll();
    return;
  }
  (void)take_messages(ControlBlock::kMessageCount, Pause::ignored);
  if (ended()) return;  // a goodbye was in the ring
  const bool died = process_ended(peer_process_.get());
  fail_locked(
      Error{ErrorCode::peer_lost, "shm.socket",
            "peer " + peer_name() + (died ? " died" : " closed the connection without a goodbye")},
      died);
}

void ShmLink::on_failed(bool death_proved) { end(death_proved); }

void ShmLink::end(bool death_proved) {
  paused_ = false;
  if (reactor_ != nullptr) {
    if (socket_) reactor_->forget(socket_.get());
    // Without proof the pidfd stays watched: when it fires, the quarantine ends.
    if (death_proved && peer_process_) reactor_->forget(peer_process_.get());
  }
  // The descriptors go now: a link that has ended may be held for long.
  memory_->hang_up();
  if (socket_) shutdown(socket_.get(), SHUT_RDWR);
  auto ledger = pool_->ledger();
  socket_.reset();
  if (death_proved) peer_process_.reset();
  take_returns(ledger);
  if (death_proved)
    ledger.free_sent();
  else
    ledger.quarantine_sent();
}

void ShmLink::shut_down() {
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  post(goodbye);
  if (reactor_ == nullptr) return;
  if (peer_process_) reactor_->forget(peer_process_.get());
  if (socket_) {
    reactor_->forget(socket_.get());
    shutdown(socket_.get(), SHUT_RDWR);
  }
  reactor_ = nullptr;
}

template <class T>
Result<T> ShmLink::as_violation(Result<T> result) const {
  if (result || result.error().code != ErrorCode::protocol_violation) return result;
  return violation(result.error().where, result.error().detail);
}

LinkStats ShmLink::stats() const {
  LinkStats stats;
  stats.slots = pool_->stats();
  stats.doorbells = memory_->doorbell_count();
  stats.messages_sent = messages_sent_.load(std::memory_order_relaxed);
  stats.bytes_sent = bytes_sent_.load(std::memory_order_relaxed);
  stats.messages_received = messages_received_.load(std::memory_order_relaxed);
  stats.bytes_received = bytes_received_.load(std::memory_order_relaxed);
  stats.dropped_messages = dropped_.load(std::memory_order_relaxed);
  stats.held_bytes = small_.bytes();
  stats.most_held_bytes = small_.most_bytes();
  return stats;
}

}  // namespace

Result<std::shared_ptr<Segment>> make_control_segment(const Token& nonce) {
  TENDON_TRY(segment, Segment::create(sizeof(ControlBlock)));
  TENDON_CHECK(claim(*segment, 0, segment->size_bytes()));
  // The arrays stay untouched: fresh memfd pages are zero, and constructing them would touch half a
  // MiB.
  auto* block = reinterpret_cast<ControlBlock*>(segment->data());
  block->magic = ControlBlock::kMagic;
  block->nonce = nonce;
  return segment;
}

Result<std::shared_ptr<Segment>> attach_control_segment(OwnedFd fd, const Token& nonce) {
  constexpr std::uint64_t kSize = (sizeof(ControlBlock) + 4095) / 4096 * 4096;
  TENDON_TRY(segment, Segment::attach(std::move(fd), kSize));
  const auto* block = reinterpret_cast<const ControlBlock*>(segment->data());
  if (block->magic != ControlBlock::kMagic || block->nonce != nonce) {
    return Error{ErrorCode::protocol_violation, "shm.attach",
                 "the nonce in the passed memory is not the one said over the socket"};
  }
  segment->release_fd();
  return segment;
}

Result<std::shared_ptr<Link>> make_shm_link(ShmLinkOptions options) {
  if (const int flags = fcntl(options.peer_doorbell.get(), F_GETFL);
      flags < 0 || (flags & O_NONBLOCK) == 0) {
    return Error{ErrorCode::protocol_violation, "shm.attach",
                 "peer " + options.peer.to_string() + ": its doorbell blocks who rings it"};
  }
  return std::shared_ptr<Link>(std::make_shared<ShmLink>(std::move(options)));
}

}  // namespace tendon::v0::detail
