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
#include "memory/recycler.hpp"
#include "transport/private_body.hpp"
#include "transport/shm/control_block.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::inline v0::detail {
namespace {

constexpr std::uint64_t kPieceBytes = 1ull << 20;
constexpr std::uint64_t kRoomStep = ControlBlock::kArenaBytes / 8;
// Segments that a peer publishes over the life of a link. Each is a mapping here.
constexpr std::uint32_t kMaxPublished = 16384;
constexpr auto kSuspectAfter = std::chrono::seconds(1);
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

  bool has_input() const noexcept override;
  bool poll() override;
  bool lend(const IncomingBody& body) noexcept override;

  Result<void> start(Reactor& reactor, LinkObserver& observer) override;
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override { my_sleep_.awake(); }
  void tick(std::chrono::steady_clock::time_point now) override;
  void shut_down() override;
  LinkStats stats() const override;

  void on_ready(int fd, std::uint32_t events) override;

 protected:
  void on_failed(bool death_proved) override;

 private:
  struct Posted {
    Descriptor descriptor;
    std::vector<std::byte> body;
  };

  // Sending; the pool's ledger is held for all of these.
  bool take_returns(SlotPool::Ledger& ledger);
  [[nodiscard]] bool room_since(std::uint64_t blocked_at) const noexcept;  // without the lock
  Result<bool> publish(Descriptor descriptor, const SendOp* op, Bytes body);
  bool place_inline(Descriptor& descriptor);
  Result<bool> announce_segments(const SlotPool::Ledger& ledger);
  Result<bool> pass(Descriptor descriptor, const Segment& segment);
  bool flush_posted();

  // Receiving; receive_mutex() is held for all of these.
  Result<void> take_in(const Descriptor& descriptor);
  Result<IncomingBody> body_of(const Descriptor& descriptor);
  Result<void> read_announcements();
  Result<void> take_published(const Descriptor& descriptor, OwnedFd fd);
  void end(bool death_proved);

  std::shared_ptr<ShmMemory> memory_;
  std::shared_ptr<SlotPool> pool_;
  OwnedFd socket_;
  OwnedFd peer_process_;
  const bool expect_signs_of_life_;
  Reactor* reactor_ = nullptr;
  SleepWord<> my_sleep_;

  // Guarded by the lock of the pool's ledger: a slot is marked and shown in one step.
  RingProducer<Descriptor> outgoing_;
  RingConsumer<ReturnEntry> returned_;
  std::array<std::uint64_t, ControlBlock::kMessageCount> arena_end_{};  // by ring place
  std::uint64_t arena_tail_ = 0;
  std::uint64_t arena_head_ = 0;  // everything before it was consumed
  std::uint32_t announced_segments_ = 0;
  std::deque<Posted> posted_;
  std::atomic<bool> anything_posted_{false};
  // What the peer had consumed when there was no room.
  std::atomic<std::uint64_t> blocked_at_head_{kNotBlocked};
  // The peer's counters or returns made no sense: poll() fails the link.
  std::atomic<bool> broken_{false};
  std::atomic<std::uint64_t> messages_sent_{0};
  std::atomic<std::uint64_t> bytes_sent_{0};

  RingConsumer<Descriptor> incoming_;
  std::vector<std::shared_ptr<const AttachedSegment>> attached_;
  /// Those that are still mapped, or more.
  std::vector<std::weak_ptr<const Segment>> published_here_;
  std::atomic<std::uint64_t> messages_received_{0};
  std::atomic<std::uint64_t> bytes_received_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<std::uint64_t> next_inline_{0};  // where in the arena the next body probably lies
  std::uint64_t room_made_ = 0;  // in arena bytes, since the peer's sleep word was last looked at

  std::uint64_t last_beat_ = 0;
  std::chrono::steady_clock::time_point last_sign_ = std::chrono::steady_clock::now();
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
      incoming_(memory_->theirs().messages, memory_->theirs().message_entries) {}

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
  while (returned_.pop(entry)) ledger.take_return({entry.segment, entry.slot, entry.generation});
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
    if (!lease && lease.error().code == ErrorCode::resource_exhausted) return false;
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
    copy_body(op, op.done_bytes, op.lease->slot().memory.subspan(op.done_bytes, piece));
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
  anything_posted_ = true;
}

// What was posted first goes first. False while something is left.
bool ShmLink::flush_posted() {
  while (!posted_.empty()) {
    const Posted& next = posted_.front();
    if (const auto published = publish(next.descriptor, nullptr, next.body);
        published && !*published)
      return false;
    posted_.pop_front();  // published, or the link is broken and poll() fails it
  }
  anything_posted_.store(false, std::memory_order_relaxed);
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
  if (incoming_.has_entry()) return true;
  if (waiting_for_returns.load(std::memory_order_relaxed) != 0 && returned_.has_entry())
    return true;
  return room_since(blocked_at_head_.load(std::memory_order_relaxed));
}

// Somebody could not send for want of room, and the peer has consumed something since.
bool ShmLink::room_since(std::uint64_t blocked_at) const noexcept {
  return blocked_at != kNotBlocked &&
         memory_->mine().messages.head.load(std::memory_order_acquire) != blocked_at;
}

bool ShmLink::poll() {
  if (ended()) return false;
  // A bound on one call, so that a flood on one link does not keep the others waiting.
  constexpr int kMostMessages = 128;
  bool moved = false;
  Descriptor descriptor;
  int count = 0;
  while (count < kMostMessages && incoming_.pop(descriptor)) {
    moved = true;
    ++count;
    const auto taken = take_in(descriptor);
    incoming_.release();
    if (!taken) {
      fail_locked(taken.error(), false);
      return true;
    }
    if (ended()) return true;
  }
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
  if (waiting_for_returns.load(std::memory_order_relaxed) != 0 && returned_.has_entry()) {
    auto ledger = pool_->ledger();
    moved |= take_returns(ledger);
  }
  std::uint64_t blocked_at = blocked_at_head_.load(std::memory_order_relaxed);
  if (room_since(blocked_at))
    moved |= blocked_at_head_.compare_exchange_strong(blocked_at, kNotBlocked);
  if (anything_posted_.load(std::memory_order_relaxed)) {
    const auto ledger = pool_->ledger();
    flush_posted();
  }
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
    default:
      break;
  }
  TENDON_TRY(body, body_of(descriptor));
  if (descriptor.kind == MessageKind::open) {
    if (observer_ != nullptr)
      observer_->on_open(*this, descriptor, {body.data, descriptor.body_bytes()});
    return {};
  }
  (void)TENDON_FAILPOINT("shm.receive.before_take");
  dispatch(Incoming{descriptor, std::move(body), nullptr});
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
  const std::uint32_t segment_id = descriptor.segment_or_inline_bytes;
  if (segment_id >= attached_.size()) TENDON_CHECK(read_announcements());
  if (segment_id >= attached_.size())
    return violation("shm.receive", "segment " + std::to_string(segment_id) + " was not announced");
  const AttachedSegment& segment = *attached_[segment_id];
  if (descriptor.slot >= segment.slot_count || descriptor.offset != 0 ||
      size > segment.slot_bytes) {
    return violation("shm.receive", "slot " + std::to_string(descriptor.slot) + " of " +
                                        std::to_string(segment.slot_count) + ", " +
                                        std::to_string(size) + " bytes of " +
                                        std::to_string(segment.slot_bytes));
  }
  IncomingBody body;
  body.place = IncomingBody::Place::peer_slot;
  body.data = segment.memory->data() + descriptor.slot * segment.slot_bytes;
  body.slot_bytes = segment.slot_bytes;
  body.owner = make_recycled<ReceivedSlot>(
      attached_[segment_id], SlotId{segment_id, descriptor.slot, descriptor.generation});
  return body;
}

// Segments announced on the socket. They are sent before the first slot of them is published.
Result<void> ShmLink::read_announcements() {
  while (socket_) {
    Descriptor descriptor;
    iovec io{&descriptor, sizeof descriptor};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 4)> control{};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    if (got <= 0) return {};  // EOF or reset: on_ready() says what it means
    std::vector<OwnedFd> fds;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (std::size_t i = 0; i < count; ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
        fds.emplace_back(fd);
      }
    }
    // None came: the kernel could not number it here. Some came: the peer passed too many.
    if ((message.msg_flags & MSG_CTRUNC) != 0 && fds.empty()) {
      return Error{ErrorCode::too_many_open_files, "shm.announce",
                   "a segment of " + peer_name() +
                       " could not be taken in: this process has no free "
                       "descriptor (raise RLIMIT_NOFILE)"};
    }
    const bool whole = got == static_cast<ssize_t>(sizeof descriptor) && fds.size() == 1 &&
                       descriptor.kind == MessageKind::segment;
    if (whole && descriptor.pipe != 0) {
      TENDON_CHECK(take_published(descriptor, std::move(fds.front())));
      continue;
    }
    const std::uint64_t slot_bytes = descriptor.payload_bytes;
    const bool sane =
        whole && descriptor.segment_or_inline_bytes == attached_.size() &&
        attached_.size() < SlotPool::kMaxSegments && slot_bytes >= SlotPool::kSmallestSlotBytes &&
        std::has_single_bit(slot_bytes) && slot_bytes <= std::bit_ceil(peer_cap_bytes()) &&
        descriptor.slot != 0 && descriptor.slot <= SlotPool::kMaxSlots;
    if (!sane) return violation("shm.announce", "a malformed announcement of a segment");
    (void)TENDON_FAILPOINT("shm.announce.before_attach");
    auto memory = Segment::attach(std::move(fds.front()), slot_bytes * descriptor.slot);
    if (!memory && memory.error().code == ErrorCode::protocol_violation)
      return violation("shm.announce", memory.error().detail);
    if (!memory) return std::move(memory).error();
    (*memory)->release_fd();
    attached_.push_back(std::make_shared<const AttachedSegment>(
        AttachedSegment{memory_, *std::move(memory), slot_bytes, descriptor.slot}));
  }
  return {};
}

// Memory that the peer shows to one of our sinks, beside what its messages travel in.
Result<void> ShmLink::take_published(const Descriptor& descriptor, OwnedFd fd) {
  MessageSink* const sink = sink_of(descriptor.pipe);
  if (sink == nullptr) return {};  // it has just gone
  if (published_here_.size() >= kMaxPublished)
    std::erase_if(published_here_, [](const auto& segment) { return segment.expired(); });
  if (published_here_.size() >= kMaxPublished)
    return violation("shm.publish", "more than " + std::to_string(kMaxPublished) + " segments");
  auto memory = Segment::attach_published(std::move(fd), descriptor.payload_bytes);
  if (!memory && memory.error().code == ErrorCode::protocol_violation)
    return violation("shm.publish", memory.error().detail);
  if (!memory) return std::move(memory).error();
  (*memory)->release_fd();
  published_here_.push_back(*memory);
  return sink->on_segment(descriptor.segment_or_inline_bytes, *std::move(memory));
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
  memory_->mine().beat.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t beat = memory_->theirs().beat.load(std::memory_order_relaxed);
  if (beat != last_beat_) {
    last_beat_ = beat;
    last_sign_ = now;
  }
  suspect_ = expect_signs_of_life_ && now - last_sign_ >= kSuspectAfter;
}

void ShmLink::on_ready(int fd, std::uint32_t) {
  if (fd == peer_process_.get()) {
    {
      // What was published before death is delivered first; its memory is held by our mapping.
      std::lock_guard receiving(receive_mutex());
      (void)read_announcements();
      while (poll()) {
      }
    }
    fail(Error{ErrorCode::peer_lost, "shm.death", "peer " + peer_name() + " died"}, true);
    return;
  }
  std::lock_guard receiving(receive_mutex());
  if (ended()) return;
  if (const auto read = read_announcements(); !read) {
    fail_locked(read.error(), false);
    return;
  }
  char byte = 0;
  const ssize_t peeked = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool closed = peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EINTR);
  if (!closed) return;
  while (poll()) {
  }
  if (ended()) return;  // a goodbye was in the ring
  const bool died = process_ended(peer_process_.get());
  fail_locked(
      Error{ErrorCode::peer_lost, "shm.socket",
            "peer " + peer_name() + (died ? " died" : " closed the connection without a goodbye")},
      died);
}

void ShmLink::on_failed(bool death_proved) { end(death_proved); }

void ShmLink::end(bool death_proved) {
  {
    auto ledger = pool_->ledger();
    take_returns(ledger);
    if (death_proved)
      ledger.free_sent();
    else
      ledger.quarantine_sent();
  }
  if (reactor_ == nullptr) return;
  if (socket_) {
    reactor_->forget(socket_.get());
    shutdown(socket_.get(), SHUT_RDWR);
  }
  // Without proof the pidfd stays watched: when it fires, the quarantine ends.
  if (death_proved && peer_process_) reactor_->forget(peer_process_.get());
}

void ShmLink::shut_down() {
  Descriptor goodbye;
  goodbye.kind = MessageKind::goodbye;
  post(goodbye);
  if (reactor_ == nullptr) return;
  reactor_->forget(socket_.get());
  reactor_->forget(peer_process_.get());
  reactor_ = nullptr;
  shutdown(socket_.get(), SHUT_RDWR);
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
  return stats;
}

}  // namespace

Result<std::shared_ptr<Segment>> make_control_segment(const Token& nonce) {
  TENDON_TRY(segment, Segment::create(sizeof(ControlBlock)));
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

}  // namespace tendon::inline v0::detail
