// SPDX-License-Identifier: Apache-2.0
#include "transport/stream/stream_link.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/failpoint.hpp"
#include "core/text.hpp"
#include "memory/recycler.hpp"
#include "transport/liveness.hpp"
#include "transport/stream/bulk_out.hpp"
#include "transport/stream/bulk_parser.hpp"
#include "transport/stream/control_out.hpp"
#include "transport/stream/control_parser.hpp"
#include "transport/stream/inbound.hpp"
#include "transport/stream/interest.hpp"
#include "transport/stream/turn_budget.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = std::chrono::steady_clock;

// The link stops reading from a peer that leaves more unread answers than this.
constexpr std::size_t kMaxUnreadAnswerBytes = 1ull << 20;
// The limit of looks for earlier input after a connection broke, for a peer that writes without
// end.
constexpr int kMaxLastLooks = 64;

// True for faults found by a part of the link that does not know which peer is at fault.
bool must_name_peer(const Error& error) {
  return error.code == ErrorCode::protocol_violation ||
         error.code == ErrorCode::authentication_failed;
}

Error about_peer(Error error, const std::string& name) {
  error.detail = "peer " + name + ": " + error.detail;
  return error;
}

std::string seconds_text(Clock::duration duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

// Counts the small messages that were sent, and all messages that arrived.
struct Counters {
  std::atomic<std::uint64_t> messages_sent{0};
  std::atomic<std::uint64_t> bytes_sent{0};
  std::atomic<std::uint64_t> messages_received{0};
  std::atomic<std::uint64_t> bytes_received{0};

  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return bytes_sent.load(std::memory_order_relaxed) +
           bytes_received.load(std::memory_order_relaxed);
  }
};

class LinkOverStreams final : public StreamLink, private InboundHost {
 public:
  explicit LinkOverStreams(StreamLinkOptions options);
  ~LinkOverStreams() override;

  Result<void> add_lane(std::unique_ptr<ByteStream> stream) override;
  void say_first(Bytes frame) override {
    control_out_.write_first(frame);
    if (control_out_.waiting_bytes() != 0) control_.interest.want_output();
  }
  [[nodiscard]] bool take_early(Bytes received);

  Result<std::shared_ptr<LoanedSlot>> acquire(std::uint64_t size_bytes) override;
  bool owns(const LoanedSlot& slot) const override { return &slot.pool() == pool_.get(); }
  Result<Sent> send(SendOp& op, Deadline deadline) override;
  bool withdraw(SendOp& op) override;
  bool drop(const LentSample& lent) override;
  void post(const Descriptor& descriptor) override { post(descriptor, {}); }
  void post(const Descriptor& descriptor, Bytes body) override;
  std::size_t posted_bytes() const noexcept override { return control_out_.waiting_bytes(); }
  bool drained() override { return control_out_.waiting_bytes() == 0 && bulk_out_.idle(); }

  // Input that lies inside a stream; epoll reports all other input.
  bool has_input() const noexcept override { return input_waits_.load(std::memory_order_relaxed); }
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
  void on_failed(Death death) override TENDON_REQUIRES(receive_mutex());

 private:
  // Any thread may touch its interest and `paused`; the rest is under receive_mutex().
  struct ControlLane {
    ControlLane(std::unique_ptr<ByteStream> from, std::uint64_t cap_bytes)
        : stream(std::move(from)), parser(cap_bytes) {}
    std::unique_ptr<ByteStream> stream;
    ControlParser parser;
    Interest interest{0};
    std::atomic<bool> paused{false};
    bool holds_input = false;   // inside the stream, where no event tells of it
    bool has_messages = false;  // in the parser: the turn was over
    bool ended = false;
    TurnBudget turn;
  };
  enum class LaneEnd : std::uint8_t {
    none,
    in_order,  // everything before it was read
    cut,       // the connection broke
  };
  struct Lane {
    Lane(std::unique_ptr<ByteStream> from, Inbound& inbound)
        : stream(std::move(from)), parser(inbound) {}
    const std::unique_ptr<ByteStream> stream;
    BulkParser parser;
    Interest interest{EPOLLRDHUP};  // a parked lane must still see its end
    bool may_have_input = false;
    bool holds_input = false;  // inside the stream, where no event tells of it
    LaneEnd end = LaneEnd::none;
    bool closed_by_peer = false;  // while it was parked
  };

  // InboundHost
  void deliver(Incoming incoming) override;
  MessageSink* receiver_of(std::uint32_t pipe) override {
    receive_mutex().assert_held();
    return sink_of(pipe);
  }
  Result<IncomingBody> allocate(std::uint64_t size_bytes) override;
  void answer(const Descriptor& descriptor) override { post(descriptor, {}); }
  Result<void> on_link_credit(std::uint64_t taken_bytes) override;
  void on_room() override {
    if (control_.paused.load(std::memory_order_relaxed)) control_.interest.want_output();
  }
  void on_open(const Descriptor& descriptor, Bytes ticket) override;
  Result<void> on_word(const Descriptor& descriptor, Bytes body) override;

  [[nodiscard]] std::chrono::milliseconds stream_lease() const {
    const Liveness::Terms& terms = liveness_.terms();
    return terms.expects ? terms.lease : std::chrono::milliseconds(0);
  }

  // Sending
  [[nodiscard]] Result<void> check_size(const Descriptor& descriptor) const;
  [[nodiscard]] Result<Sent> send_inline(SendOp& op);
  [[nodiscard]] Result<Sent> send_bulk(SendOp& op, Deadline deadline);
  void want_output() TENDON_REQUIRES(bulk_out_.mutex());

  // Receiving
  [[nodiscard]] bool paused() const noexcept TENDON_REQUIRES(receive_mutex()) {
    return !inbound_.may_take() || control_out_.waiting_bytes() > kMaxUnreadAnswerBytes;
  }
  bool read_everything() TENDON_REQUIRES(receive_mutex());
  bool read_once() TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] std::uint64_t share_bytes() const TENDON_REQUIRES(receive_mutex());
  bool read_control() TENDON_REQUIRES(receive_mutex());
  bool take_messages() TENDON_REQUIRES(receive_mutex());
  bool read_lane(Lane& lane) TENDON_REQUIRES(receive_mutex());
  void end_lane(Lane& lane, LaneEnd how) TENDON_REQUIRES(receive_mutex());
  bool write_out() TENDON_REQUIRES(receive_mutex());
  void settle() TENDON_REQUIRES(receive_mutex());
  void refresh_interest() TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] Error lost(std::string_view how) const TENDON_REQUIRES(receive_mutex());
  [[nodiscard]] Error lost(int error) const TENDON_REQUIRES(receive_mutex());
  void close_streams() TENDON_REQUIRES(receive_mutex());

  const std::shared_ptr<SlotPool> pool_;
  const std::uint32_t expected_lanes_;
  const std::uint64_t poll_bytes_;
  ControlLane control_;
  ControlOut control_out_;
  BulkOut bulk_out_;
  Reactor* reactor_ TENDON_GUARDED_BY(receive_mutex()) = nullptr;

  Inbound inbound_ TENDON_GUARDED_BY(receive_mutex());
  // Changed under both receive_mutex() and bulk_out_.mutex(), read under either.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> input_waits_{false};
  std::uint64_t left_bytes_ TENDON_GUARDED_BY(receive_mutex()) = 0;  // of this poll()
  std::size_t first_lane_ TENDON_GUARDED_BY(receive_mutex()) = 0;
  int last_looks_ TENDON_GUARDED_BY(receive_mutex()) = 0;
  bool closed_ TENDON_GUARDED_BY(receive_mutex()) = false;
  // The error that ends the link once everything received was handed over.
  std::optional<Error> verdict_ TENDON_GUARDED_BY(receive_mutex());
  int rounds_with_ended_lane_ TENDON_GUARDED_BY(receive_mutex()) = 0;
  Liveness liveness_;

  std::atomic<bool> shut_down_{false};
  Counters counters_;
  LinkRenewal renewal_;
};

LinkOverStreams::LinkOverStreams(StreamLinkOptions options)
    : StreamLink(std::move(options.path), std::move(options.peer), options.cap_bytes,
                 options.peer_cap_bytes),
      pool_(std::move(options.pool)),
      expected_lanes_(options.lanes),
      poll_bytes_(options.poll_bytes),
      control_(std::move(options.control), options.cap_bytes),
      control_out_(*control_.stream),
      bulk_out_(control_out_, options.peer_cap_bytes),
      inbound_(*this, options.cap_bytes),
      liveness_({.lease = options.lease,
                 .expects = options.expect_signs_of_life,
                 .gives = options.gives_signs_of_life},
                Clock::now()),
      renewal_(std::move(options.renewal),
               {.post = [this](const Descriptor& word, Bytes body) { post(word, body); },
                .each_stream =
                    [this](const std::function<void(ByteStream&)>& call) {
                      receive_mutex().assert_held();
                      call(*control_.stream);
                      for (const auto& lane : lanes_) call(*lane->stream);
                    },
                .expects_signs_of_life = options.expect_signs_of_life},
               Clock::now()) {
  lanes_.reserve(kMaxStreamsPerLink);
  control_.stream->set_lease(stream_lease());
}

LinkOverStreams::~LinkOverStreams() {
  drop_sinks();
  control_.interest.forget();
  if (control_.stream) control_.stream->discard_input();
  for (const auto& lane : lanes_) {
    lane->interest.forget();
    lane->stream->discard_input();
  }
}

bool LinkOverStreams::take_early(Bytes received) {
  const Lock receiving(receive_mutex());
  const MutableBytes room = control_.parser.room();
  if (received.size() > room.size()) return false;
  if (received.empty()) return true;
  std::memcpy(room.data(), received.data(), received.size());
  control_.parser.on_received(received.size());
  // No other event tells the Context that there is something to read.
  control_.interest.want_output();
  return true;
}

Result<void> LinkOverStreams::start(Reactor& reactor, LinkObserver& observer) {
  const Lock receiving(receive_mutex());
  reactor_ = &reactor;
  observer_ = &observer;
  TENDON_CHECK(control_.interest.watch(reactor, control_.stream->fd(), weak_from_this()));
  for (const auto& lane : lanes_) {
    TENDON_CHECK(lane->interest.watch(reactor, lane->stream->fd(), weak_from_this()));
  }
  return {};
}

Result<void> LinkOverStreams::add_lane(std::unique_ptr<ByteStream> stream) {
  const Lock receiving(receive_mutex());
  if (ended()) return end_error();
  if (lanes_.size() >= kMaxStreamsPerLink) {
    return Error{ErrorCode::limit_exceeded, "tcp.add_lane",
                 "link to " + peer_name() + ": a further bulk connection, at most " +
                     std::to_string(kMaxStreamsPerLink) + " are allowed"};
  }
  stream->set_lease(stream_lease());
  auto lane = std::make_unique<Lane>(std::move(stream), inbound_);
  {
    const Lock sending(bulk_out_.mutex());
    TENDON_CHECK(bulk_out_.add_lane(*lane->stream));
    lanes_.push_back(std::move(lane));
  }
  Lane& added = *lanes_.back();
  // Bytes inside the stream raise no event.
  added.may_have_input = true;
  // The Context sends what waited for a lane, and wakes the callers.
  if (!bulk_out_.idle()) added.interest.want_output();
  if (reactor_ == nullptr) return {};
  return added.interest.watch(*reactor_, added.stream->fd(), weak_from_this());
}

// Sending

Result<std::shared_ptr<LoanedSlot>> LinkOverStreams::acquire(std::uint64_t size_bytes) {
  if (ended()) return end_error();
  TENDON_TRY(slot, pool_->acquire(size_bytes));
  return make_recycled<LoanedSlot>(pool_, slot);
}

Result<void> LinkOverStreams::check_size(const Descriptor& descriptor) const {
  // Checks the payload first, as the sum could overflow.
  if (descriptor.payload_bytes <= peer_cap_bytes() && descriptor.body_bytes() <= peer_cap_bytes()) {
    return {};
  }
  return Error{ErrorCode::message_too_large, "tcp.send",
               "a message of " + std::to_string(descriptor.payload_bytes) +
                   " payload bytes: peer " + peer_name() + " takes at most " +
                   std::to_string(peer_cap_bytes()) +
                   " bytes a message (its ContextOptions::link_cap_bytes)"};
}

Result<Sent> LinkOverStreams::send(SendOp& op, Deadline deadline) {
  if (ended()) return end_error();
  if (shut_down_.load(std::memory_order_acquire)) {
    return Error{ErrorCode::context_closed, "tcp.send",
                 "the link to " + peer_name() + " was shut down"};
  }
  TENDON_CHECK(check_size(op.descriptor));
  return travels_inline(op.descriptor.body_bytes()) ? send_inline(op) : send_bulk(op, deadline);
}

Result<Sent> LinkOverStreams::send_inline(SendOp& op) {
  if (bulk_out_.waiting_descriptors() != 0) {
    const Lock lock(bulk_out_.mutex());
    if (bulk_out_.holds_descriptor_of(op.descriptor.pipe)) {
      want_output();
      return Sent::later;
    }
  }
  if (TENDON_FAILPOINT("tcp.send.before_descriptor")) {
    return Error{ErrorCode::internal, "tcp.send", "failpoint tcp.send.before_descriptor"};
  }
  const bool taken = control_out_.try_send(op);
  if (control_out_.waiting_bytes() != 0) control_.interest.want_output();
  if (!taken) return Sent::later;
  op.done = true;
  counters_.messages_sent.fetch_add(1, std::memory_order_relaxed);
  counters_.bytes_sent.fetch_add(op.descriptor.body_bytes(), std::memory_order_relaxed);
  if (TENDON_FAILPOINT("tcp.send.after_descriptor")) {
    return Error{ErrorCode::internal, "tcp.send", "failpoint tcp.send.after_descriptor"};
  }
  return Sent::done;
}

Result<Sent> LinkOverStreams::send_bulk(SendOp& op, Deadline deadline) {
  for (;;) {
    {
      // Unlocked between frames, so that several senders share the lanes.
      const Lock lock(bulk_out_.mutex());
      if (op.done || op.dropped) return Sent::done;
      if (ended()) return end_error();
      if (!bulk_out_.holds(op)) bulk_out_.enqueue(op);
      const BulkOut::Progress progress = bulk_out_.pump();
      if (op.done) {
        if (control_out_.waiting_bytes() != 0 || !bulk_out_.idle()) want_output();
        return Sent::done;
      }
      if (op.dropped) return Sent::done;
      if (!progress.more) {
        want_output();
        return Sent::later;
      }
    }
    if (!deadline.is_poll() && deadline.has_passed()) {
      const Lock lock(bulk_out_.mutex());
      want_output();
      return Error{ErrorCode::timeout, "tcp.send",
                   "sending to " + peer_name() + ": the deadline passed after " +
                       std::to_string(bulk_out_.written_bytes(op)) + " of " +
                       std::to_string(op.descriptor.body_bytes()) + " bytes"};
    }
  }
}

// Asks the Context to call when the kernel has room for what waits. Only poll() takes this request
// back, so that a waiting thread hears what another one finished.
void LinkOverStreams::want_output() {
  if (control_out_.waiting_bytes() != 0) control_.interest.want_output();
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (bulk_out_.lane_waits(lane)) lanes_[lane]->interest.want_output();
  }
}

bool LinkOverStreams::withdraw(SendOp& op) {
  if (travels_inline(op.descriptor.body_bytes())) return !op.done;  // taken whole or not at all
  const Lock lock(bulk_out_.mutex());
  if (op.done) return false;  // the leading thread wrote its end
  bulk_out_.withdraw(op);
  want_output();
  return true;
}

bool LinkOverStreams::drop(const LentSample& lent) {
  const Lock lock(bulk_out_.mutex());
  const bool was_here = bulk_out_.drop(lent);
  if (was_here) want_output();
  return was_here;
}

void LinkOverStreams::post(const Descriptor& descriptor, Bytes body) {
  Descriptor complete = descriptor;
  if (has_body(descriptor.kind)) {  // which may be empty
    complete.flags |= Descriptor::kInline;
    complete.segment_or_inline_bytes = static_cast<std::uint32_t>(complete.body_bytes());
  }
  control_out_.post(complete, body);
  if (control_out_.waiting_bytes() != 0) control_.interest.want_output();
}

// Receiving

void LinkOverStreams::on_ready(int fd, std::uint32_t events) {
  const Lock receiving(receive_mutex());
  if (closed_) return;
  const bool hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (fd == control_.stream->fd()) {
    // Nothing can be read while paused, and this event would repeat without end.
    if (hung_up && paused() && !verdict_) verdict_ = lost("the connection broke");
  }
  for (const auto& lane : lanes_) {
    if (fd != lane->stream->fd()) continue;
    const bool closed = hung_up || (events & EPOLLRDHUP) != 0;
    if ((events & EPOLLIN) != 0 || closed) lane->may_have_input = true;
    if (!closed || !lane->parser.parked()) continue;
    // Nothing is read meanwhile, and this event would repeat without end.
    lane->closed_by_peer = true;
    lane->interest.forget();
  }
  poll();
}

bool LinkOverStreams::poll() {
  if (closed_ || ended()) return false;
  if (!verdict_ && control_out_.failure() != 0 && !inbound_.goodbye()) {
    verdict_ = lost(control_out_.failure());
  }
  bool moved = read_everything();
  // The peer's renewal words wait while this end does not read.
  if (renewal_.is_of_tls() && !verdict_ && !inbound_.goodbye() && !control_.paused) {
    const std::uint64_t carried_bytes = counters_.bytes() + bulk_out_.sent_bytes();
    if (auto renewed = renewal_.go_on(carried_bytes, Clock::now()); !renewed)
      verdict_ = about_peer(renewed.error(), peer_name());
  }
  moved |= write_out();
  settle();
  if (!closed_) refresh_interest();
  return moved;
}

bool LinkOverStreams::read_everything() {
  left_bytes_ = poll_bytes_;
  control_.turn.begin();
  bool moved = false;
  for (;;) {
    const bool now = read_once();
    moved |= now;
    const bool unpaused = control_.paused && !paused();
    // Hands over everything that was received before the link ends.
    const bool ending = verdict_.has_value() && verdict_->code == ErrorCode::peer_lost && now;
    if (left_bytes_ == 0 || (!unpaused && !ending)) return moved;
  }
}

bool LinkOverStreams::read_once() {
  bool moved = read_control();
  // The lanes take turns at being first. Bytes that one poll() leaves raise another event.
  first_lane_ = lanes_.empty() ? 0 : (first_lane_ + 1) % lanes_.size();
  for (std::size_t step = 0; step < lanes_.size(); ++step) {
    Lane& lane = *lanes_[(first_lane_ + step) % lanes_.size()];
    // A lane is silent unless a transfer is open; epoll knows of the exceptions.
    if (lane.may_have_input || inbound_.open_count() != 0) moved |= read_lane(lane);
  }
  return moved;
}

// Returns how much one stream may take of the rest of this poll().
std::uint64_t LinkOverStreams::share_bytes() const {
  return std::min(left_bytes_, std::max<std::uint64_t>(poll_bytes_ / 2, 1));
}

bool LinkOverStreams::read_control() {
  bool moved = take_messages();
  std::uint64_t share = share_bytes();
  while (!control_.ended && !control_.has_messages && !paused() && share != 0) {
    if (verdict_ && verdict_->code != ErrorCode::peer_lost) break;
    MutableBytes room = control_.parser.room();
    room = room.first(std::min<std::uint64_t>(room.size(), share));
    const iovec piece{room.data(), room.size()};
    const StreamIo io = control_.stream->read({&piece, 1});
    control_.holds_input = io.inside_bytes != 0;
    if (io.state == StreamIo::State::later) break;
    moved = true;
    if (io.state == StreamIo::State::moved) {
      control_.parser.on_received(io.bytes);
      take_messages();
      share -= io.bytes;
      left_bytes_ -= io.bytes;
      if (io.bytes < room.size() && !control_.holds_input) break;
    } else {
      control_.ended = true;
      control_.interest.forget();
      if (!inbound_.goodbye() && !verdict_) {
        verdict_ = io.state == StreamIo::State::ended
                       ? lost("the connection was closed without a goodbye")
                       : lost(io.error);
      }
    }
  }
  control_.paused = paused();
  if (moved) liveness_.heard();
  return moved;
}

bool LinkOverStreams::take_messages() {
  bool moved = false;
  control_.has_messages = false;
  while (!paused()) {
    if (verdict_ && verdict_->code != ErrorCode::peer_lost) break;
    // At its end a link hands over everything that was received.
    if (!verdict_ && control_.turn.is_spent()) {
      control_.has_messages = true;
      break;
    }
    auto message = control_.parser.next();
    if (message && !*message) break;
    moved = true;
    if (!verdict_) control_.turn.note(std::chrono::steady_clock::now);
    const auto taken = message ? inbound_.on_message(**message) : Result<void>(message.error());
    if (taken) continue;
    verdict_ =
        must_name_peer(taken.error()) ? about_peer(taken.error(), peer_name()) : taken.error();
  }
  return moved;
}

bool LinkOverStreams::read_lane(Lane& lane) {
  bool moved = false;
  auto parsed = lane.parser.resume();
  std::uint64_t share = share_bytes();
  while (parsed && lane.end == LaneEnd::none && !lane.parser.parked() && share != 0) {
    ReadTargets targets = lane.parser.targets();
    const std::size_t offered = targets.cut_to(share);
    const StreamIo io = lane.stream->read(targets.all());
    lane.holds_input = io.inside_bytes != 0;
    if (io.state == StreamIo::State::moved) {
      parsed = lane.parser.on_received(io.bytes);
      moved = true;
      share -= io.bytes;
      left_bytes_ -= io.bytes;
      if (TENDON_FAILPOINT("tcp.recv.mid_bulk")) end_lane(lane, LaneEnd::cut);
    } else if (io.state != StreamIo::State::later) {
      const auto why = lane.stream->why_lost();
      if (why && why->code == ErrorCode::protocol_violation && !verdict_)
        verdict_ = violation(why->where, why->detail);
      end_lane(lane, io.state == StreamIo::State::ended ? LaneEnd::in_order : LaneEnd::cut);
    }
    if (io.bytes < offered && !lane.holds_input) {
      lane.may_have_input = false;
      break;
    }
  }
  if (!parsed && (!verdict_ || verdict_->code == ErrorCode::peer_lost)) {
    verdict_ = parsed.error().code == ErrorCode::protocol_violation
                   ? violation(parsed.error().where, parsed.error().detail)
                   : parsed.error();
  }
  if (moved) liveness_.heard();
  return moved;
}

// Does not end the link yet: the goodbye travels on another connection and may still arrive. tick()
// ends the link if it does not.
void LinkOverStreams::end_lane(Lane& lane, LaneEnd how) {
  lane.end = how;
  lane.holds_input = false;
  lane.may_have_input = false;
  lane.interest.forget();
}

bool LinkOverStreams::write_out() {
  if (control_.interest.output() && control_.stream->wants_room()) (void)control_.stream->write({});
  for (const auto& lane : lanes_)
    if (lane->interest.output() && lane->stream->wants_room()) (void)lane->stream->write({});
  bool moved = control_out_.flush();
  if (!bulk_out_.idle()) {
    // The thread that holds the lock is already pumping.
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

void LinkOverStreams::settle() {
  // After a goodbye no descriptor arrives for a parked lane. A lane whose handshake is under way
  // may hold the bodies of everything that was announced.
  const bool all_lanes_ended = lanes_.size() >= expected_lanes_ &&
                               std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
                                 return lane->end != LaneEnd::none || lane->parser.parked();
                               });
  // A goodbye explains connections that end afterwards, but no other fault.
  const bool lost_only = verdict_ && verdict_->code == ErrorCode::peer_lost;
  if (verdict_ && !(lost_only && inbound_.goodbye())) {
    if (lost_only && left_bytes_ == 0 && ++last_looks_ <= kMaxLastLooks) return;
    // Tells the peer of a refusal: the streams stay until everything was sent.
    if (verdict_->code == ErrorCode::authentication_failed) shut_down();
    fail_locked(*verdict_, Death::not_proved);
  } else if (inbound_.goodbye()) {
    // Frames of earlier messages may still be under way on the other connections.
    const std::size_t incomplete = inbound_.open_count();
    if (incomplete != 0 && !all_lanes_ended) return;
    // A peer that leaves messages incomplete ends their connection in order. A connection that
    // breaks may have been cut by somebody else.
    const bool is_cut = std::any_of(lanes_.begin(), lanes_.end(),
                                    [](const auto& lane) { return lane->end == LaneEnd::cut; });
    if (incomplete != 0 && is_cut) {
      fail_locked(lost("it said goodbye, and a bulk connection broke before " +
                       std::to_string(incomplete) + " messages were complete"),
                  Death::not_proved);
      return;
    }
    close_streams();
    end_in_order();
  }
}

void LinkOverStreams::refresh_interest() {
  // No sender writes the switch to a renewed session, so no sender sees that it waits for room.
  if (renewal_.is_of_tls()) {
    if (control_.stream->wants_room()) control_.interest.want_output();
    for (const auto& lane : lanes_)
      if (lane->stream->wants_room()) lane->interest.want_output();
  }
  // Bytes that were read ahead while paused raise no event of their own: room for output does.
  const bool read_ahead = control_.paused && !paused();
  if (!control_.paused || read_ahead) {
    control_.interest.want_input();
  } else {
    control_.interest.drop_input();
  }
  if (read_ahead) {
    control_.interest.want_output();
  } else if (control_.interest.output() && control_out_.waiting_bytes() == 0 &&
             !control_.stream->wants_room()) {
    control_.interest.drop_output();
    if (control_out_.waiting_bytes() != 0 || control_.stream->wants_room())
      control_.interest.want_output();
  }
  bool any_output = false;
  bool input_waits = (control_.holds_input || control_.has_messages) && !paused();
  for (const auto& lane : lanes_) {
    if (lane->parser.parked()) {
      lane->interest.drop_input();
    } else {
      lane->interest.want_input();
      input_waits |= lane->holds_input;
    }
    any_output |= lane->interest.output();
  }
  input_waits_.store(input_waits, std::memory_order_relaxed);
  if (!any_output) return;
  if (!bulk_out_.mutex().try_lock()) return;
  const Lock lock(bulk_out_.mutex(), kAdoptLock);
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (bulk_out_.lane_waits(lane) || lanes_[lane]->stream->wants_room()) {
      lanes_[lane]->interest.want_output();
    } else {
      lanes_[lane]->interest.drop_output();
    }
  }
}

void LinkOverStreams::deliver(Incoming incoming) {
  receive_mutex().assert_held();
  counters_.messages_received.fetch_add(1, std::memory_order_relaxed);
  if (incoming.place() != IncomingBody::Place::nowhere) {
    counters_.bytes_received.fetch_add(incoming.descriptor.body_bytes(), std::memory_order_relaxed);
  }
  dispatch(std::move(incoming));
}

Result<IncomingBody> LinkOverStreams::allocate(std::uint64_t size_bytes) {
  IncomingBody body;
  body.place = IncomingBody::Place::pool_slot;
  if (auto slot = pool_->acquire(size_bytes)) {
    body.data = slot->memory.data();
    body.owner = make_recycled<LoanedSlot>(pool_, *slot);
    return body;
  }
  // Uses private memory: the user keeps what it received, or the pool is smaller than the link's
  // cap.
  TENDON_TRY(storage, Storage::allocate(size_bytes));
  body.data = storage.data();
  body.owner = storage.owner();
  return body;
}

Result<void> LinkOverStreams::on_link_credit(std::uint64_t taken_bytes) {
  const Lock lock(bulk_out_.mutex());
  if (bulk_out_.on_taken(taken_bytes)) return {};
  return Error{ErrorCode::protocol_violation, "tcp.credit",
               "it took " + std::to_string(taken_bytes) + " bytes, more than was announced to it"};
}

Result<void> LinkOverStreams::on_word(const Descriptor& descriptor, Bytes body) {
  receive_mutex().assert_held();
  if (descriptor.kind == MessageKind::secure) return renewal_.take(descriptor, body, Clock::now());
  if (descriptor.kind == MessageKind::device) {
    const auto wrong = device_offers.take_in(descriptor, features());
    return wrong.empty() ? Result<void>() : violation("tcp.receive", std::string(wrong));
  }
  if (descriptor.kind == MessageKind::goodbye)
    note_goodbye(descriptor);
  else if (observer_ != nullptr)
    observer_->on_word(*this, descriptor);
  return {};
}

void LinkOverStreams::on_open(const Descriptor& descriptor, Bytes ticket) {
  if (observer_ != nullptr) observer_->on_open(*this, descriptor, ticket);
}

// Life

// A process that was stopped for longer than its peer waits finds a broken connection. The error
// must say so, or its user looks for the fault at the peer.
Error LinkOverStreams::lost(std::string_view how) const {
  Error result{ErrorCode::peer_lost, "tcp.receive", "peer " + peer_name() + ": "};
  result.detail += how;
  const auto away = liveness_.own_absence(Clock::now());
  if (away != Clock::duration::zero()) {
    result.detail += "; nothing ran here for " + seconds_text(away) +
                     " (was this process stopped?), so the peer may have taken it for lost";
  }
  return result;
}

Error LinkOverStreams::lost(int error) const {
  if (auto why = control_.stream->why_lost()) {
    why->detail = "peer " + peer_name() + ": " + why->detail;
    return *std::move(why);
  }
  Error result = lost("the connection broke: " + errno_text(error));
  result.system_errno = error;
  return result;
}

void LinkOverStreams::tick(Clock::time_point now) {
  renewal_.look(now);
  const Lock receiving(receive_mutex());
  if (closed_ || ended()) return;
  // This process may have slept through the lease while words of the peer lie in the socket.
  liveness_.tick(now);
  poll();
  if (closed_ || ended()) return;

  const bool lane_broke =
      bulk_out_.failure() != 0 || std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
        return lane->end != LaneEnd::none || lane->closed_by_peer;
      });
  // While the control lane waits for the program, a goodbye may lie unread in it.
  const bool reads_control = inbound_.may_take();
  if (lane_broke && reads_control && !inbound_.goodbye() && ++rounds_with_ended_lane_ > 1) {
    fail_locked(lost("a bulk connection was closed without a goodbye"), Death::not_proved);
    return;
  }
  if (!reads_control) liveness_.excuse();
  const auto silence = liveness_.silence();
  const auto lease = liveness_.terms().lease;
  if (inbound_.goodbye() && silence >= lease) {
    fail_locked(lost("it said goodbye, and nothing came for " + seconds_text(silence) + " of " +
                     std::to_string(inbound_.open_count()) + " messages that are not complete"),
                Death::not_proved);
    return;
  }
  suspect_ = liveness_.is_suspect(silence);
  if (liveness_.is_lost(silence)) {
    fail_locked(lost("no sign of life for " + seconds_text(silence) + " (lease " +
                     seconds_text(lease) + ")"),
                Death::not_proved);
    return;
  }
  // Sends one word a tick, whatever else is said: the peer's lease is not known here. Bytes that
  // wait are a word as well.
  if (control_out_.waiting_bytes() == 0) post(Descriptor{.kind = MessageKind::ping}, {});
}

void LinkOverStreams::on_failed(Death) { close_streams(); }

void LinkOverStreams::close_streams() {
  if (closed_) return;
  closed_ = true;
  control_.paused = false;
  input_waits_ = false;
  inbound_.abort_all();
  control_.interest.forget();
  for (const auto& lane : lanes_) lane->interest.forget();
  const Lock lock(bulk_out_.mutex());
  renewal_.end();
  bulk_out_.stop();
  control_out_.stop();
  control_.stream.reset();
  lanes_.clear();
}

void LinkOverStreams::shut_down() {
  if (shut_down_.exchange(true, std::memory_order_acq_rel)) return;
  if (!closed_) write_out();
  {
    // Other threads may still send: nothing of theirs is announced behind the goodbye.
    const Lock lock(bulk_out_.mutex());
    control_out_.post_last(goodbye());
    bulk_out_.stop();
  }
  if (closed_) return;
  control_out_.flush();
  closed_ = true;
  inbound_.abort_all();
  control_.interest.forget();
  control_out_.stop();
  input_waits_ = false;
  // Output that was handed over still leaves; the streams are destroyed with the link.
  renewal_.end();
  control_.stream->end_output();
  control_.stream->end_input();
  for (const auto& lane : lanes_) {
    lane->interest.forget();
    lane->stream->end_output();
    lane->stream->end_input();
  }
}

LinkStats LinkOverStreams::stats() const {
  LinkStats stats;
  stats.silence = liveness_.last_silence();
  stats.slots = pool_->stats();
  stats.messages_sent =
      counters_.messages_sent.load(std::memory_order_relaxed) + bulk_out_.sent_messages();
  stats.bytes_sent = counters_.bytes_sent.load(std::memory_order_relaxed) + bulk_out_.sent_bytes();
  stats.messages_received = counters_.messages_received.load(std::memory_order_relaxed);
  stats.bytes_received = counters_.bytes_received.load(std::memory_order_relaxed);
  stats.dropped_messages = dropped_messages();
  stats.held_bytes = inbound_.small().bytes() + inbound_.large().bytes();
  stats.most_held_bytes = inbound_.small().most_bytes() + inbound_.large().most_bytes();
  stats.kept_bytes = budget_.bytes();
  stats.untaken_bytes = bulk_out_.untaken_bytes();
  stats.renewals = renewal_.count();
  stats.refused_renewals = renewal_.refused_count();
  return stats;
}

}  // namespace

Result<std::shared_ptr<StreamLink>> make_stream_link(StreamLinkOptions options) {
  if (options.control == nullptr || options.pool == nullptr) {
    return Error{ErrorCode::invalid_argument, "tcp.make", "a link needs a stream and a pool"};
  }
  const std::vector<std::byte> received = std::move(options.received_already);
  auto link = std::make_shared<LinkOverStreams>(std::move(options));
  if (!link->take_early(received)) {
    return Error{ErrorCode::protocol_violation, "tcp.make",
                 "peer " + link->peer_name() + ": " + std::to_string(received.size()) +
                     " bytes came with the handshake, at most " +
                     std::to_string(ControlParser::kBufferBytes) + " are read ahead"};
  }
  return std::shared_ptr<StreamLink>(std::move(link));
}

}  // namespace tendon::v0::detail
