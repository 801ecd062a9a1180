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
#include <new>
#include <optional>
#include <tendon/observe/log.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/failpoint.hpp"
#include "core/stage_clock.hpp"
#include "core/text.hpp"
#include "memory/claim.hpp"
#include "memory/recycler.hpp"
#include "transport/liveness.hpp"
#include "transport/private_body.hpp"
#include "transport/shared_memory_link.hpp"
#include "transport/shm/control_block.hpp"
#include "transport/shm/devices_out.hpp"
#include "transport/shm/link_holds.hpp"
#include "transport/shm/messages_in.hpp"
#include "transport/shm/messages_out.hpp"
#include "transport/shm/passing.hpp"
#include "transport/shm/peer_devices.hpp"
#include "transport/shm/peer_segments.hpp"
#include "transport/shm/shm_memory.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kPieceBytes = 1ull << 20;
// The cost here of a message in a slot. The sender's slots bound their number only if it keeps to
// the rules.
constexpr std::uint64_t kSlotMessageCostBytes = 256;
// A peer that leaves more than this of answers unread is not read any further.
constexpr std::size_t kMaxUnreadAnswerBytes = 1ull << 20;

Result<void> about_peer(Result<void> result, const std::string& name) {
  if (result) return result;
  Error error = std::move(result).error();
  error.detail = "peer " + name + ": " + error.detail;
  return error;
}

bool process_ended(int pidfd) {
  pollfd wanted{pidfd, POLLIN, 0};
  return pidfd >= 0 && ::poll(&wanted, 1, 0) == 1;
}

// Everything that it sends is in memory that the peer has mapped.
constexpr LinkTraits kTraits{.sent_is_delivered = true,
                             .slots_bound_window = true,
                             .slots_go_over = true,
                             .shows_input = true};

// The beat that a peer counts in shared memory, and for how long it has not changed.
struct PeerBeat {
  Liveness liveness;
  std::uint64_t last = 0;

  void look(std::uint64_t beat, std::chrono::steady_clock::time_point now) {
    liveness.tick(now);
    if (beat != std::exchange(last, beat)) liveness.heard();
  }
};

class ShmLink final : public Link, public SharedMemoryLink {
 public:
  explicit ShmLink(ShmLinkOptions options);
  ~ShmLink() override;

  Result<std::shared_ptr<LoanedSlot>> acquire(std::uint64_t size_bytes) override;
  bool owns(const LoanedSlot& slot) const override { return &slot.pool() == pool_.get(); }
  Result<Sent> send(SendOp& op, Deadline deadline) override {
    return send(op, deadline, Then::show);
  }
  Result<Sent> prepare(SendOp& op, Deadline deadline) override {
    return send(op, deadline, Then::wait);
  }
  void show() override {
    const auto ledger = pool_->ledger();
    out_.show();
  }
  void ring_behind_barrier() noexcept override {
    if (memory_->peer_sleep().asleep_behind_barrier(SleepWord<>::kForMessages))
      memory_->ring_doorbell();
  }
  bool withdraw(SendOp& op) override;
  void post(const Descriptor& descriptor) override { post(descriptor, {}); }
  void post(const Descriptor& descriptor, Bytes body) override;
  void prefault(std::uint64_t size_bytes) override;
  Result<Sent> publish_segment(std::uint32_t pipe, std::uint32_t id,
                               const Segment& segment) override;
  Result<Sent> share_segment(const SegmentInfo& info) override;
  bool takes_holds() const noexcept override { return holds_.taken(); }
  bool collect_returns() override {
    auto ledger = pool_->ledger();
    return take_returns(ledger);
  }
  void ring_for_flags() noexcept override;
  DevicesOut& devices_out() noexcept override { return devices_out_; }
  bool kill_peer() noexcept override;
  // Unchecked, here and below: another thread may ask a part at any time.
  std::size_t posted_bytes() const noexcept override TENDON_UNCHECKED_LOCKS {
    return out_.posted_bytes();
  }
  bool drained() override;

  bool has_input() const noexcept override TENDON_UNCHECKED_LOCKS;
  bool poll() override TENDON_REQUIRES(receive_mutex()) {
    segments_.begin_turn();
    return go_on();
  }
  bool lend(const IncomingBody& body) noexcept override TENDON_REQUIRES(receive_mutex());

  Result<void> start(Reactor& reactor, LinkObserver& observer) override;
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override { my_sleep_.awake(); }
  void tick(std::chrono::steady_clock::time_point now) override;
  void shut_down() override TENDON_REQUIRES(receive_mutex());
  LinkStats stats() const override TENDON_UNCHECKED_LOCKS;

  void on_ready(int fd, std::uint32_t events) override;

 protected:
  void on_failed(Death death) override TENDON_REQUIRES(receive_mutex());

 private:
  // Sending
  bool take_returns(SlotPool::Ledger& ledger) TENDON_REQUIRES(pool_->mutex());
  bool use_up_room() noexcept TENDON_UNCHECKED_LOCKS { return out_.use_up_room(); }
  [[nodiscard]] bool broken() const noexcept TENDON_UNCHECKED_LOCKS { return out_.broken(); }
  [[nodiscard]] bool returns_wait() const noexcept TENDON_UNCHECKED_LOCKS {
    return waiting_for_returns.load(std::memory_order_relaxed) != 0 && returned_.has_entry();
  }
  enum class Then : std::uint8_t { show, wait };
  Result<Sent> send(SendOp& op, Deadline deadline, Then then);
  /// Empty: beyond the share of the peer, which gets a copy.
  Result<std::optional<Sent>> send_held(SendOp& op, Then then);
  Result<bool> announce_segments(const SlotPool::Ledger& ledger) TENDON_REQUIRES(pool_->mutex());

  // Receiving
  enum class Pause : std::uint8_t { heeded, ignored };
  [[nodiscard]] bool may_take() const noexcept TENDON_REQUIRES(receive_mutex());
  enum class Taken : std::uint8_t { yes, later };
  bool go_on() TENDON_REQUIRES(receive_mutex());
  int take_messages(int most_count, Pause pause) TENDON_REQUIRES(receive_mutex());
  Result<Taken> take_in(const Descriptor& descriptor) TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] bool needs_announcements(const Descriptor& descriptor) const
      TENDON_REQUIRES(receive_mutex());
  Result<IncomingBody> body_of(const Descriptor& descriptor) TENDON_REQUIRES(receive_mutex());
  Result<void> read_announcements() TENDON_REQUIRES(receive_mutex());
  /// The part of a turn that only links with GPUs have: answers about the peer's memory on GPUs,
  /// once it was mapped here, and reports arrived tensors. Returns whether anything moved.
  [[gnu::noinline]] Result<bool> serve_devices() TENDON_REQUIRES(receive_mutex());
  template <class T>
  [[nodiscard]] Result<T> as_violation(Result<T> result) const;
  void end(LinkLife::State state) TENDON_REQUIRES(receive_mutex());

  std::shared_ptr<ShmMemory> memory_;
  std::shared_ptr<SlotPool> pool_;
  LinkHolds holds_;
  OwnedFd socket_;
  OwnedFd peer_process_;
  Reactor* reactor_ = nullptr;
  SleepWord<> my_sleep_;

  // Under the lock of the pool's ledger: a slot is marked and shown in one step.
  MessagesOut out_ TENDON_GUARDED_BY(pool_->mutex());
  RingConsumer<ReturnEntry> returned_ TENDON_GUARDED_BY(pool_->mutex());
  std::uint32_t announced_segments_ TENDON_GUARDED_BY(pool_->mutex()) = 0;

  MessagesIn in_ TENDON_GUARDED_BY(receive_mutex());
  PeerSegments segments_ TENDON_GUARDED_BY(receive_mutex());
  PeerDevices devices_ TENDON_GUARDED_BY(receive_mutex());
  DevicesOut devices_out_;
  std::atomic<bool> has_devices_{false};  // a word about GPUs has arrived: other links check none
  ///   enough -> lacking -> stalled;  both -> enough with the next tick, which may be in vain
  enum class Descriptors : std::uint8_t {
    enough,   ///< the socket is watched
    lacking,  ///< it is not: an announcement stays there, because no descriptor was free for it
    stalled   ///< and the next message of the ring waits for an announcement
  };
  Descriptors descriptors_ TENDON_GUARDED_BY(receive_mutex()) = Descriptors::enough;
  HeldBytes small_;
  std::atomic<bool> paused_{false};  // the ring is not read: see may_take()

  PeerBeat beat_ TENDON_GUARDED_BY(receive_mutex());
  LinkRenewal renewal_;
};

ShmLink::ShmLink(ShmLinkOptions options)
    : Link(kTraits, std::move(options.path), std::move(options.peer), options.cap_bytes,
           options.peer_cap_bytes),
      memory_(std::make_shared<ShmMemory>(
          options.mine, options.theirs, std::move(options.peer_doorbell), options.peer_cap_bytes)),
      pool_(std::make_shared<SlotPool>("link to " + peer_name(), options.cap_bytes)),
      holds_(std::move(options.publish_pool), peer_name()),
      socket_(std::move(options.socket)),
      peer_process_(std::move(options.peer_process)),
      my_sleep_(memory_->mine().sleeping),
      out_(*memory_),
      returned_(memory_->theirs().returns, memory_->theirs().return_entries),
      in_(*memory_),
      segments_(
          peer_name(), options.peer_cap_bytes, memory_,
          [this](std::uint32_t pipe) TENDON_REQUIRES(receive_mutex()) { return sink_of(pipe); },
          [this](const Descriptor& word, OwnedFd descriptor) TENDON_REQUIRES(receive_mutex()) {
            has_devices_ = true;
            return word.tag == static_cast<std::uint32_t>(DeviceWord::answer)
                       ? devices_out_.take_answer(word, std::move(descriptor))
                       : devices_.announce(word, std::move(descriptor), features());
          }),
      devices_(peer_name(), memory_),
      devices_out_(*this,
                   options.expect_signs_of_life ? DevicesOut::Peer::answers_by_itself
                                                : DevicesOut::Peer::answers_in_calls,
                   pool_, memory_,
                   [this](const Descriptor& word, int fd) {
                     pool_->mutex().assert_held();
                     return pass_descriptor(socket_.get(), word, fd, peer_name());
                   }),
      small_(private_limit_bytes(options.cap_bytes),
             [this] {
               // The program took something: the ring may be read again. Nothing else tells the
               // Context.
               if (paused_.load(std::memory_order_relaxed) && reactor_ != nullptr && socket_)
                 reactor_->change(socket_.get(), EPOLLIN | EPOLLRDHUP | EPOLLOUT);
             }),
      beat_{.liveness = {{.expects = options.expect_signs_of_life},
                         std::chrono::steady_clock::now()}},
      renewal_(std::move(options.renewal),
               {.post = [this](const Descriptor& word, Bytes body) { post(word, body); },
                .expects_signs_of_life = options.expect_signs_of_life},
               std::chrono::steady_clock::now()) {
  shared_memory_ = this;
}

ShmLink::~ShmLink() {
  drop_sinks();
  if (reactor_ == nullptr) return;
  if (socket_) reactor_->forget(socket_.get());
  if (peer_process_) reactor_->forget(peer_process_.get());
}

Result<void> ShmLink::start(Reactor& reactor, LinkObserver& observer) {
  reactor_ = &reactor;
  observer_ = &observer;
  const auto self = weak_from_this();
  {
    const Lock receiving(receive_mutex());
    devices_.start([self] {
      const auto handler = self.lock();
      if (handler == nullptr) return;
      auto& link = static_cast<ShmLink&>(*handler);
      const Lock receiving_there(link.receive_mutex());
      link.devices_.note_mapped();
      if (link.reactor_ != nullptr)
        link.observer_->on_word(link, device_word(DeviceWord::segment, 0));
    });
    segments_.start([self] {
      const auto handler = self.lock();
      if (handler == nullptr) return;
      auto& link = static_cast<ShmLink&>(*handler);
      if (link.features().has(Feature::devices)) link.post(device_word(DeviceWord::registers, 0));
    });
  }
  TENDON_CHECK(reactor.watch(socket_.get(), EPOLLIN | EPOLLRDHUP, self));
  return reactor.watch(peer_process_.get(), EPOLLIN, self);
}

// Sending

bool ShmLink::take_returns(SlotPool::Ledger& ledger) {
  if (!returned_.has_entry()) return false;
  ReturnEntry entry;
  // Entries that a peer adds meanwhile are left for the next call.
  for (std::size_t count = 0; count < ControlBlock::kReturnCount && returned_.pop(entry); ++count) {
    const SlotId id{entry.segment, entry.slot, entry.generation};
    if (id.segment >= cuda::DevicePool::kFirstSegment && devices_out_.holds().take_return(id))
      continue;
    if (id.segment < PublishPool::kFirstSegment || !holds_.take_return(id)) ledger.take_return(id);
  }
  returned_.release();
  if (returned_.corrupt()) out_.break_off();
  return true;
}

Result<std::shared_ptr<LoanedSlot>> ShmLink::acquire(std::uint64_t size_bytes) {
  if (ended()) return end_error();
  // The return ring lies in the peer's cache. While there is a warm slot it is not read here:
  // send() reads it when the last one was used, while the peer is busy with the message.
  auto ledger = pool_->ledger();
  if (auto warm = ledger.acquire_warm(size_bytes)) return make_recycled<LoanedSlot>(pool_, *warm);
  take_returns(ledger);
  TENDON_TRY(slot, ledger.acquire(size_bytes));
  return make_recycled<LoanedSlot>(pool_, slot);
}

Result<Sent> ShmLink::send(SendOp& op, Deadline deadline, Then then) {
  if (ended()) return end_error();
  const std::uint64_t body_bytes = op.descriptor.body_bytes();
  if (op.loaned == nullptr && body_bytes <= kMaxInlineBytes) {
    const auto ledger = pool_->ledger();
    // As below: its hold has ended.
    if (!op.device_part.empty() && ended()) return end_error();
    if (!out_.flush() || (op.device != nullptr && !devices_out_.number(*op.device)))
      return Sent::later;
    auto placed = out_.place_small(op);
    if (!placed) return as_violation(std::move(placed));
    op.done = *placed == Sent::done;
    if (op.done && !op.device_part.empty()) devices_out_.note_placed(op);
    if (op.done && then == Then::show) out_.show_and_wake();
    return *placed;
  }
  if (op.published != nullptr && op.loaned == nullptr && holds_.can_hold(*op.published)) {
    TENDON_TRY(held, send_held(op, then));
    if (held) return *held;
    op.over_share = true;
  }
  if (op.loaned == nullptr) {
    auto slot = acquire(body_bytes);
    // The peer's returns make room below the cap, but not memory that the system refuses.
    if (!slot && slot.error().code == ErrorCode::resource_exhausted &&
        slot.error().system_errno == 0)
      return Sent::later;
    if (!slot) return std::move(slot).error();
    op.own_slot = *std::move(slot);
    op.loaned = op.own_slot.get();
    op.filled_bytes = 0;
  }
  // The copy is made without the sending lock, so that other pipes continue meanwhile.
  const bool is_filled = op.filled_bytes == body_bytes;
  const ColdFill cold =
      is_filled || op.own_slot == nullptr ? ColdFill() : pool_->cold_fill(op.own_slot->slot());
  while (op.filled_bytes != body_bytes) {
    if (op.filled_bytes != 0 && deadline.has_passed()) {
      return Error{ErrorCode::timeout, "shm.send",
                   "sending to " + peer_name() + ": the deadline passed after " +
                       std::to_string(op.filled_bytes) + " of " + std::to_string(body_bytes) +
                       " bytes; nothing was delivered"};
    }
    const std::uint64_t piece = std::min(kPieceBytes, body_bytes - op.filled_bytes);
    if (!cold.write(op.filled_bytes, contiguous_body(op, op.filled_bytes, piece))) {
      copy_body(op, op.filled_bytes, op.loaned->slot().memory.subspan(op.filled_bytes, piece),
                body_bytes);
    }
    op.filled_bytes += piece;
    (void)TENDON_FAILPOINT("shm.send.mid_copy");
  }
  (void)TENDON_FAILPOINT("shm.send.slot_loaned");
  Descriptor descriptor = op.descriptor;
  const SlotId id = op.loaned->slot().id;
  descriptor.segment_or_inline_bytes = id.segment;
  descriptor.slot = id.slot;
  descriptor.generation = id.generation;
  descriptor.offset = 0;
  auto ledger = pool_->ledger();
  // The link may have ended during the copy. Its end frees or quarantines everything sent until
  // then, and holds this lock once after it has said so. A slot that is marked sent below is thus
  // handled by the end, or is not marked at all.
  if (ended()) return end_error();
  TENDON_TRY(announced, announce_segments(ledger));
  if (!announced || !out_.flush()) return Sent::later;
  if (op.device != nullptr) {
    if (!devices_out_.number(*op.device)) return Sent::later;
    // It got its number after the body was written.
    std::memcpy(op.loaned->slot().memory.data() + body_bytes - op.device_part.size(),
                op.device_part.data(), op.device_part.size());
  }
  if (!op.loaned->mark_sent(ledger)) {
    return Error{ErrorCode::internal, "shm.send", "a slot that is not loaned was to be sent"};
  }
  TENDON_STAGE(slot_marked);
  auto placed = out_.place(descriptor, op.share);
  if (!placed || *placed == Sent::later) {
    op.loaned->unmark_sent(ledger);
    return as_violation(std::move(placed));
  }
  if (!op.device_part.empty()) devices_out_.note_placed(op);
  if (then == Then::show) out_.show_and_wake();
  const std::uint64_t slot_bytes = op.loaned->slot().memory.size();
  op.loaned = nullptr;
  op.own_slot.reset();
  op.done = true;
  if (!ledger.has_warm(slot_bytes)) take_returns(ledger);
  return Sent::done;
}

// The body lies in a slot of the publish pool, whose segment the caller has shared. A ring without
// room, which closes the window, is no error.
Result<std::optional<Sent>> ShmLink::send_held(SendOp& op, Then then) {
  if (op.descriptor.body_bytes() > cap_bytes()) {
    return Error{ErrorCode::message_too_large, "shm.send",
                 "a sample of " + std::to_string(op.descriptor.body_bytes()) + " bytes, at most " +
                     std::to_string(cap_bytes()) +
                     " are legal on a link (ContextOptions::link_cap_bytes)"};
  }
  auto ledger = pool_->ledger();
  if (ended()) return end_error();  // as in send(): the end of a link ends its holds
  take_returns(ledger);
  if (!out_.flush()) return Sent::later;
  const SlotId id = op.published->id();
  const auto window = holds_.give(ledger, *op.published, op.share_bytes);
  if (window == PublishPool::Window::beyond_share) return std::optional<Sent>();
  if (window == PublishPool::Window::closed) return Sent::later;
  Descriptor descriptor = op.descriptor;
  descriptor.segment_or_inline_bytes = id.segment;
  descriptor.slot = id.slot;
  descriptor.generation = id.generation;
  descriptor.offset = 0;
  auto placed = out_.place(descriptor, op.share);
  if (!placed || *placed == Sent::later) {
    holds_.take_back(id);
    auto checked = as_violation(std::move(placed));
    if (!checked) return std::move(checked).error();
    return *checked;
  }
  if (then == Then::show) out_.show_and_wake();
  op.done = true;
  op.over_share = false;
  return Sent::done;
}

Result<bool> ShmLink::announce_segments(const SlotPool::Ledger& ledger) {
  const std::uint32_t count = pool_->segment_count();
  if (announced_segments_ == count) return true;
  for (const SegmentInfo& info : ledger.segments_from(announced_segments_)) {
    TENDON_TRY(sent,
               pass_descriptor(socket_.get(), segment_word(info), info.segment->fd(), peer_name()));
    if (!sent) return false;
    (void)TENDON_FAILPOINT("shm.announce.after_send");
    info.segment->release_fd();
    announced_segments_ = info.id + 1;
  }
  return true;
}

Result<Sent> ShmLink::publish_segment(std::uint32_t pipe, std::uint32_t id,
                                      const Segment& segment) {
  if (ended()) return end_error();
  Descriptor descriptor;
  descriptor.kind = MessageKind::segment;
  descriptor.pipe = pipe;
  descriptor.segment_or_inline_bytes = id;
  descriptor.payload_bytes = segment.size_bytes();
  const auto ledger = pool_->ledger();  // guards the socket
  TENDON_TRY(passed, pass_descriptor(socket_.get(), descriptor, segment.fd(), peer_name()));
  return passed ? Sent::done : Sent::later;
}

Result<Sent> ShmLink::share_segment(const SegmentInfo& info) {
  if (!takes_holds()) {
    return Error{ErrorCode::not_supported, "link.share",
                 "peer " + peer_name() + " takes no holds: its version of the protocol knows none"};
  }
  if (ended()) return end_error();
  const auto ledger = pool_->ledger();  // guards the socket
  TENDON_TRY(passed,
             pass_descriptor(socket_.get(), segment_word(info), info.segment->fd(), peer_name()));
  if (passed) (void)TENDON_FAILPOINT("shm.announce.after_send");
  return passed ? Sent::done : Sent::later;
}

bool ShmLink::kill_peer() noexcept {
  const auto ledger = pool_->ledger();  // guards the descriptor
  return syscall(SYS_pidfd_send_signal, peer_process_.get(), SIGKILL, nullptr, 0) == 0;
}

void ShmLink::ring_for_flags() noexcept { memory_->wake(SleepWord<>::kForFlags); }

bool ShmLink::withdraw(SendOp& op) {
  // Only send() publishes. Only the slot is returned, unless the user's loan holds it.
  op.loaned = nullptr;
  op.own_slot.reset();
  return !op.done;
}

void ShmLink::post(const Descriptor& descriptor, Bytes body) {
  if (ended()) return;
  const auto ledger = pool_->ledger();
  out_.post(descriptor, body);
}

void ShmLink::prefault(std::uint64_t size_bytes) {
  const auto touched =
      pool_->prefault(size_bytes, SlotPool::kLeastWarmSlots, [this] { return !ended(); });
  if (!touched) log(LogLevel::info, "shm.prefault", touched.error().detail);
}

bool ShmLink::drained() {
  const bool are_copied = devices_out_.copies()->are_over();
  const auto ledger = pool_->ledger();
  return out_.flush() && are_copied;
}

// Receiving

bool ShmLink::has_input() const noexcept {
  if (in_.has_entry() && !paused_.load(std::memory_order_relaxed)) return true;
  if (returns_wait()) return true;
  if (has_devices_.load(std::memory_order_relaxed) &&
      (devices_.has_input() || devices_out_.copies()->has_news()))
    return true;
  return out_.room_came();
}

// False while the program leaves too many small messages, or the peer too many answers, unread.
bool ShmLink::may_take() const noexcept {
  return descriptors_ != Descriptors::stalled && small_.has_room(kMaxInlineBytes) &&
         posted_bytes() <= kMaxUnreadAnswerBytes;
}

// Returns the number of messages. May end the link.
int ShmLink::take_messages(int most_count, Pause pause) {
  Descriptor descriptor;
  int count = 0;
  while (count < most_count && (pause == Pause::ignored || may_take()) && in_.pop(descriptor)) {
    TENDON_STAGE(popped);
    const auto taken = take_in(descriptor);
    if (taken && *taken == Taken::later) {
      in_.unpop();
      break;
    }
    ++count;
    in_.release();
    if (!taken) fail_locked(taken.error(), Death::not_proved);
    if (ended()) break;
  }
  return count;
}

bool ShmLink::go_on() {
  if (ended()) return false;
  // A bound on one call, so that a flood on one link does not delay the others.
  constexpr int kMostMessages = 128;
  if (posted_bytes() != 0) {
    const auto ledger = pool_->ledger();
    out_.flush();
  }
  const int count = take_messages(kMostMessages, Pause::heeded);
  if (ended()) return true;
  paused_.store(!may_take(), std::memory_order_relaxed);
  bool moved = count != 0 || segments_.turn_is_spent();
  if (in_.corrupt() || broken()) {
    fail_locked(violation("shm.poll", "its counters in shared memory make no sense"),
                Death::not_proved);
    return true;
  }
  in_.wake_for_room(static_cast<std::uint64_t>(count));
  // Everything for which has_input() answers true is used up here and counts as moved. Otherwise
  // the leading thread would look again and again without waking the threads concerned.
  if (returns_wait()) {
    auto ledger = pool_->ledger();
    moved |= take_returns(ledger);
  }
  if (has_devices_.load(std::memory_order_relaxed)) [[unlikely]] {
    const auto served = serve_devices();
    if (!served) {
      fail_locked(as_violation(served).error(), Death::not_proved);
      return true;
    }
    moved |= *served;
  }
  moved |= use_up_room();
  return moved;
}

// Otherwise epoll would report an announcement that stays on the socket again and again.
Result<void> ShmLink::read_announcements() {
  const bool lacked_before = segments_.lacks_descriptor();
  TENDON_CHECK(as_violation(segments_.read(socket_.get())));
  if (!segments_.lacks_descriptor()) return {};
  if (!lacked_before) {
    log(LogLevel::warn, "shm.announce",
        "a segment of " + peer_name() +
            " waits, and with it what lies there: this process has no free descriptor (raise "
            "RLIMIT_NOFILE)");
  }
  if (descriptors_ == Descriptors::enough) descriptors_ = Descriptors::lacking;
  if (reactor_ != nullptr) reactor_->forget(socket_.get());
  return {};
}

// Announcements are not in the ring. They were made before the messages that use or end them.
bool ShmLink::needs_announcements(const Descriptor& descriptor) const {
  switch (descriptor.kind) {
    case MessageKind::goodbye:
    case MessageKind::open:
    case MessageKind::end:
    case MessageKind::cancel:
    case MessageKind::error:
    case MessageKind::device:
      return true;
    default:
      if (descriptor.device_parts != 0) return true;
      return descriptor.body_bytes() != 0 && !descriptor.is_inline() &&
             !segments_.knows(descriptor.segment_or_inline_bytes);
  }
}

// Later: more was announced than this turn reads, or than there are descriptors for, and the
// message has to wait for it.
Result<ShmLink::Taken> ShmLink::take_in(const Descriptor& descriptor) {
  if (const auto wrong = check_descriptor(descriptor, peer_cap_bytes()); !wrong.empty()) {
    return violation("shm.receive", "message of kind " + std::to_string(int(descriptor.kind)) +
                                        ": " + std::string(wrong));
  }
  if (needs_announcements(descriptor)) {
    TENDON_CHECK(read_announcements());
    if (segments_.turn_is_spent()) return Taken::later;
    if (segments_.lacks_descriptor() && needs_announcements(descriptor)) {
      descriptors_ = Descriptors::stalled;
      return Taken::later;
    }
  }
  in_.note(descriptor);
  switch (descriptor.kind) {
    case MessageKind::segment:
      return violation("shm.receive", "a segment announced in the ring");
    case MessageKind::goodbye:
      note_goodbye(descriptor);
      small_.end();
      end_in_order();
      end(LinkLife::State::in_order);
      return Taken::yes;
    case MessageKind::ping:
      return Taken::yes;
    case MessageKind::retire:
    case MessageKind::clock:
      if (observer_ != nullptr) observer_->on_word(*this, descriptor);
      return Taken::yes;
    case MessageKind::device:
      has_devices_ = true;
      if (descriptor.tag == static_cast<std::uint32_t>(DeviceWord::answer)) {
        TENDON_CHECK(as_violation(devices_out_.take_answer(descriptor, {})));
        return Taken::yes;
      }
      if (const auto wrong = descriptor.tag == static_cast<std::uint32_t>(DeviceWord::offer)
                                 ? device_offers.take_in(descriptor, features())
                             : descriptor.tag == static_cast<std::uint32_t>(DeviceWord::registers)
                                 ? devices_out_.keep_pages(features())
                             : descriptor.tag == static_cast<std::uint32_t>(DeviceWord::pages_stay)
                                 ? segments_.note_pages_stay()
                                 : devices_.take_in(descriptor);
          !wrong.empty())
        return violation("shm.receive", std::string(wrong));
      return Taken::yes;
    default:
      break;
  }
  TENDON_TRY(body, body_of(descriptor));
  TENDON_STAGE(body_made);
  if (descriptor.kind == MessageKind::open) {
    if (body.failure() != nullptr) return *body.failure();
    if (observer_ != nullptr)
      observer_->on_open(*this, descriptor, {body.data, descriptor.body_bytes()});
    return Taken::yes;
  }
  if (descriptor.kind == MessageKind::secure) {
    TENDON_CHECK(about_peer(renewal_.take(descriptor, {body.data, descriptor.body_bytes()},
                                          std::chrono::steady_clock::now()),
                            peer_name()));
    return Taken::yes;
  }
  (void)TENDON_FAILPOINT("shm.receive.before_take");
  Incoming incoming{descriptor, std::move(body), nullptr};
  if (descriptor.device_parts != 0) [[unlikely]] {
    TENDON_TRY(device, as_violation(devices_.body_of(descriptor, incoming.body, features())));
    incoming.device = std::move(device);
  }
  if (incoming.place() == IncomingBody::Place::private_copy)
    incoming.held = HeldBytes::Share(small_, private_cost_bytes(descriptor.body_bytes()));
  else if (descriptor.kind == MessageKind::bytes || incoming.device != nullptr)
    incoming.held = HeldBytes::Share(small_, kSlotMessageCostBytes);
  dispatch(std::move(incoming));
  TENDON_STAGE(dispatched);
  return Taken::yes;
}

Result<IncomingBody> ShmLink::body_of(const Descriptor& descriptor) {
  if (descriptor.body_bytes() == 0) return IncomingBody{};
  switch (descriptor.kind) {
    case MessageKind::data:
    case MessageKind::bytes:
    case MessageKind::schema:
    case MessageKind::error:
    case MessageKind::open:
    case MessageKind::secure:
      break;
    default:
      return IncomingBody{};  // check_descriptor() has checked that there is none
  }
  auto body = descriptor.is_inline() ? in_.body_of(descriptor) : segments_.body_of(descriptor);
  if (!body) body = as_violation(std::move(body));
  return body;
}

Result<bool> ShmLink::serve_devices() {
  TENDON_CHECK(devices_.collect());
  for (const Descriptor* next = devices_.next_answer(); next != nullptr;
       next = devices_.next_answer()) {
    const Descriptor word = *next;
    if (word.slot == static_cast<std::uint32_t>(DeviceAnswer::direct)) {
      const auto ledger = pool_->ledger();  // guards the socket
      const auto passed = pass_descriptor(socket_.get(), word, devices_.words().fd(), peer_name());
      if (!passed || !*passed) break;  // the socket has no room: in a later turn
    } else {
      post(word);
    }
    devices_.answered();
  }
  const bool has_arrived = devices_.look();
  if (has_arrived) {
    for (const std::uint32_t pipe : devices_.take_tried())
      if (MessageSink* const sink = sink_of(pipe)) sink->on_device_tried();
  }
  return devices_out_.copies()->use_up_news() || has_arrived;
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
  renewal_.look(now);
  // The service thread and a leading caller may both be here.
  const Lock receiving(receive_mutex());
  memory_->mine().beat.fetch_add(1, std::memory_order_relaxed);
  const std::uint64_t beat = memory_->theirs().beat.load(std::memory_order_relaxed);
  beat_.look(beat, now);
  if (!ended()) devices_.tick();
  if (descriptors_ != Descriptors::enough && reactor_ != nullptr && socket_ &&
      reactor_->watch(socket_.get(), EPOLLIN | EPOLLRDHUP | EPOLLOUT, weak_from_this()))
    descriptors_ = Descriptors::enough;
  suspect_ = beat_.liveness.is_suspect(beat_.liveness.silence());
  if (!ended()) devices_out_.say_gone();
  if (ended() || !renewal_.is_of_tls()) return;
  const LinkStats carried = stats();
  if (auto renewed =
          about_peer(renewal_.go_on(carried.bytes_sent + carried.bytes_received, now), peer_name());
      !renewed)
    fail_locked(renewed.error(), Death::not_proved);
}

void ShmLink::on_ready(int fd, std::uint32_t events) {
  const Lock receiving(receive_mutex());
  segments_.begin_turn();
  // Messages published before the end are delivered first; our mapping holds their memory. The end
  // may be a lie, and the peer may continue: it is one ring and one turn of announcements at most.
  if (fd == peer_process_.get()) {
    if (!ended()) {
      (void)read_announcements();
      (void)take_messages(ControlBlock::kMessageCount, Pause::ignored);
    }
    fail_locked(Error{ErrorCode::peer_lost, "shm.death", "peer " + peer_name() + " died"},
                Death::proved);
    return;
  }
  if (ended()) return;
  if ((events & EPOLLOUT) != 0) reactor_->change(socket_.get(), EPOLLIN | EPOLLRDHUP);
  if (const auto read = read_announcements(); !read) {
    fail_locked(read.error(), Death::not_proved);
    return;
  }
  char byte = 0;
  const ssize_t peeked = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool closed = peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EINTR);
  if (!closed) {
    if ((events & EPOLLOUT) != 0) go_on();
    return;
  }
  (void)take_messages(ControlBlock::kMessageCount, Pause::ignored);
  if (ended()) return;  // a goodbye was in the ring
  const bool died = process_ended(peer_process_.get());
  fail_locked(
      Error{ErrorCode::peer_lost, "shm.socket",
            "peer " + peer_name() + (died ? " died" : " closed the connection without a goodbye")},
      died ? Death::proved : Death::not_proved);
}

void ShmLink::on_failed(Death death) {
  end(death == Death::proved ? LinkLife::State::died : LinkLife::State::failed);
}

void ShmLink::end(LinkLife::State state) {
  small_.end();
  devices_.end();
  renewal_.end();
  const bool death_proved = state == LinkLife::State::died;
  paused_ = false;
  if (reactor_ != nullptr) {
    if (socket_) reactor_->forget(socket_.get());
    // Without proof the pidfd stays watched: when it fires, the quarantine ends.
    if (death_proved && peer_process_) reactor_->forget(peer_process_.get());
  }
  // The descriptors are closed now: a link that has ended may be held for long.
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
  if (state != LinkLife::State::in_order) {
    const Death death = death_proved ? Death::proved : Death::not_proved;
    holds_.end(death);
    devices_out_.holds().end(death);
    return;
  }
  // A goodbye ends messages, not returns: collect_returns() takes them, whenever they arrive.
  holds_.retire();
  devices_out_.holds().retire();
  if (holds_.count() + devices_out_.holds().count() != 0)
    my_sleep_.announce(SleepWord<>::kForReturns);
}

void ShmLink::shut_down() {
  post(goodbye());
  renewal_.end();
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
  stats.silence = beat_.liveness.last_silence();
  stats.slots = pool_->stats();
  stats.holds = holds_.count() + devices_out_.holds().count();
  stats.doorbells = memory_->doorbell_count();
  stats.dropped_returns = memory_->dropped_returns();
  stats.messages_sent = out_.message_count();
  stats.bytes_sent = out_.body_bytes();
  stats.messages_received = in_.message_count();
  stats.bytes_received = in_.body_bytes();
  stats.dropped_messages = dropped_messages();
  stats.held_bytes = small_.bytes();
  stats.most_held_bytes = small_.most_bytes();
  stats.view_count = memory_->lent_count();
  stats.kept_bytes = budget_.bytes();
  stats.renewals = renewal_.count();
  stats.refused_renewals = renewal_.refused_count();
  return stats;
}

}  // namespace

Result<std::shared_ptr<Segment>> make_control_segment(const Nonce128& nonce) {
  TENDON_TRY(segment, Segment::create(sizeof(ControlBlock)));
  TENDON_CHECK(claim(*segment, 0, segment->size_bytes()));
  // The arrays stay untouched: fresh memfd pages are zero, and constructing them would touch half a
  // MiB.
  auto* block = reinterpret_cast<ControlBlock*>(segment->data());
  block->magic = ControlBlock::kMagic;
  block->nonce = nonce;
  return segment;
}

Result<std::shared_ptr<Segment>> attach_control_segment(OwnedFd fd, const Nonce128& nonce) {
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
                 "peer " + options.peer.to_string() + ": its doorbell blocks its ringer"};
  }
  return std::shared_ptr<Link>(std::make_shared<ShmLink>(std::move(options)));
}

}  // namespace tendon::v0::detail
