// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/session/path.hpp>
#include <unordered_map>
#include <vector>

#include "memory/segment.hpp"
#include "transport/message.hpp"

namespace tendon::v0::detail {

class Link;

/// One end of a pipe, as a link sees it. Every call comes under the link's receive lock.
class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// The next message of this pipe, in order.
  virtual void on_message(Incoming&& incoming) = 0;
  /// tcp: may the payload of this message be written straight to its destination? Fills
  /// `destination` with as many bytes as the payload has, in order, and returns true; or leaves it
  /// alone.
  virtual bool claim_destination(const Descriptor& descriptor,
                                 std::vector<MutableBytes>& destination) = 0;
  /// tcp: may this message come at all? Asked before memory for it is found. False: the sink has
  /// failed with the reason; what still comes of the message is dropped.
  virtual bool admits(const Descriptor& descriptor) = 0;
  /// The transfer handed over with on_message() is complete or aborted now.
  virtual void on_transfer_ended(const Transfer& transfer) = 0;
  /// shm: the peer lets this side read a segment that it alone may write; `id` is its name for it.
  /// What a sink does not expect, it refuses: that ends the link.
  virtual Result<void> on_segment(std::uint32_t id, std::shared_ptr<Segment> segment);
  /// shm: the same, but this process has no memory to map it.
  virtual void on_segment_failed(std::uint32_t, const Error&) {}
  /// Nothing more will come. Messages handed over before stay valid.
  virtual void on_link_failed(const Error& error) = 0;
  /// The link had failed without a proof that the peer is dead: here it is.
  virtual void on_death_proved() {}
};

/// What a link tells the runtime. Every call comes under the link's receive lock.
class LinkObserver {
 public:
  virtual ~LinkObserver() = default;
  /// The peer opens a pipe; the observer attaches a sink, or answers an `error` message.
  virtual void on_open(Link& link, const Descriptor& descriptor, Bytes ticket) = 0;
  /// The link is over: death proved, connection lost, protocol broken, or `goodbye` (then `error`
  /// is null).
  virtual void on_ended(Link& link, const Error* error) = 0;
};

/// Something with a descriptor in the engine's epoll.
class FdHandler {
 public:
  virtual ~FdHandler() = default;
  /// `events` as epoll gives them. Called by whichever thread leads, without locks held.
  virtual void on_ready(int fd, std::uint32_t events) = 0;
};

/// The engine's epoll, as links see it. Thread-safe.
class Reactor {
 public:
  virtual ~Reactor() = default;
  [[nodiscard]] virtual Result<void> watch(int fd, std::uint32_t events,
                                           std::weak_ptr<FdHandler> handler) = 0;
  virtual void change(int fd, std::uint32_t events) = 0;
  virtual void forget(int fd) = 0;
};

struct LinkStats {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t dropped_messages = 0;  ///< for pipes that were gone
  std::uint64_t doorbells = 0;         ///< times the peer had to be woken
  std::uint64_t held_bytes = 0;        ///< private memory here of messages that were not taken
  std::uint64_t most_held_bytes = 0;   ///< and the most there ever was, or a little more
  std::uint64_t untaken_bytes = 0;     ///< tcp: sent in frames, and not taken as far as was heard
  SlotPoolStats slots;                 ///< of the memory this side lends
};

/// The connection of one pair of Contexts, whatever carries it. One conformance suite tests every
/// implementation (tests/conformance).
///
/// Owns:    sockets, shared memory, the table of pipes.
/// Threads: sending under its own lock; receiving under receive_mutex(), which poll() expects to be
///          held. Lock order: receive_mutex before the sending lock; neither is held while calling
///          the engine.
/// Errors:  after fail() every call answers the error the link ended with, naming the peer.
/// Blocks:  never.
/// Cost:    shm: no system call unless the peer sleeps; tcp: one call per frame.
class Link : public std::enable_shared_from_this<Link>, public FdHandler {
 public:
  Link(Path path, PeerIdentity peer, std::uint64_t cap_bytes, std::uint64_t peer_cap_bytes);
  ~Link() override = default;

  [[nodiscard]] const Path& path() const noexcept { return path_; }
  [[nodiscard]] const PeerIdentity& peer() const noexcept { return peer_; }
  /// "vision (host a, pid 12)", for errors.
  [[nodiscard]] const std::string& peer_name() const noexcept { return peer_name_; }
  /// Bytes this side may have with the peer; bytes the peer may have here.
  [[nodiscard]] std::uint64_t cap_bytes() const noexcept { return cap_bytes_; }
  [[nodiscard]] std::uint64_t peer_cap_bytes() const noexcept { return peer_cap_bytes_; }

  // Sending
  /// A slot that a message of `size_bytes` can travel in without a further copy. resource_exhausted
  /// means: try again when the peer gave something back (announce `wants_returns` while waiting).
  [[nodiscard]] virtual Result<std::shared_ptr<SlotLease>> acquire(std::uint64_t size_bytes) = 0;
  /// Was this slot taken from this link?
  [[nodiscard]] virtual bool owns(const SlotLease& lease) const = 0;
  /// Begins or continues to send. True: done, the op's memory may be reused. False: call again when
  /// something moved. `deadline` is looked at between pieces of at most 1 MiB; `timeout` leaves the
  /// op as it is: withdraw() it or go on.
  [[nodiscard]] virtual Result<bool> send(SendOp& op, Deadline deadline) = 0;
  /// Takes back an op that is not done: it will not be delivered. False: too late, another thread
  /// finished it meanwhile and it will be delivered. Its memory is free when this returns.
  [[nodiscard]] virtual bool withdraw(SendOp& op) = 0;
  /// A small control message without body; queued when it cannot leave now, never blocks.
  virtual void post(const Descriptor& descriptor) = 0;
  /// A small message with a text body (kind `error`) or a header (kind `open`); queued likewise.
  virtual void post(const Descriptor& descriptor, Bytes body) = 0;
  /// shm: lets the peer's sink of `pipe`, which must be attached there, read `segment`
  /// (Writers::maker_only). False: the socket is full, try again. not_supported where memory cannot
  /// be shared.
  [[nodiscard]] virtual Result<bool> publish_segment(std::uint32_t pipe, std::uint32_t id,
                                                     const Segment& segment);
  /// A flag in a published segment has moved: wakes the peer if it sleeps and waits for flags.
  virtual void ring_for_flags() noexcept {}
  /// shm: ends the peer's process, by the descriptor that proves its death. False: it cannot.
  virtual bool kill_peer() noexcept { return false; }
  /// Makes memory for messages of this size exist before they are sent; may take long. A hint.
  virtual void prefault(std::uint64_t) {}
  /// Everything posted or sent so far lies with the kernel or in the ring.
  [[nodiscard]] virtual bool drained() = 0;
  /// True when a message is at the peer as soon as it was sent (shm); else flush needs an `ack`.
  [[nodiscard]] virtual bool delivers_at_once() const noexcept = 0;

  // Receiving
  [[nodiscard]] Mutex& receive_mutex() const noexcept TENDON_RETURNS_LOCK(receive_mutex_) {
    return receive_mutex_;
  }
  /// A glance without a lock: would poll() find something that epoll does not tell? tcp: never.
  [[nodiscard]] virtual bool has_input() const noexcept = 0;
  /// Takes in what has come and hands it to the sinks; lets queued output out. Returns whether
  /// anything moved.
  virtual bool poll() TENDON_REQUIRES(receive_mutex_) = 0;
  /// Lends this body to the user until its owner goes. False: it must be copied, because its sender
  /// would run short of slots (docs/memory.md, "A consumer that keeps what it receives").
  [[nodiscard]] virtual bool lend(const IncomingBody& body) noexcept
      TENDON_REQUIRES(receive_mutex_) = 0;

  // Pipes
  void attach(std::uint32_t pipe, std::shared_ptr<MessageSink> sink)
      TENDON_REQUIRES(receive_mutex_);
  void detach(std::uint32_t pipe) TENDON_REQUIRES(receive_mutex_);
  /// tcp: no byte is written any more to what this pipe claimed; a transfer into it is aborted.
  virtual void drop_claims(std::uint32_t) TENDON_REQUIRES(receive_mutex_) {}
  /// Numbers for pipes that this side opens; only the connecting side does.
  [[nodiscard]] std::uint32_t next_pipe_id() noexcept TENDON_REQUIRES(receive_mutex_) {
    return ++last_opened_pipe_;
  }
  [[nodiscard]] std::size_t pipe_count() const noexcept TENDON_REQUIRES(receive_mutex_) {
    return sinks_.size();
  }
  [[nodiscard]] bool carries(std::uint32_t pipe) const TENDON_REQUIRES(receive_mutex_) {
    return sinks_.contains(pipe);
  }

  // Life
  /// Registers descriptors; called once, when the link is owned by a shared_ptr.
  [[nodiscard]] virtual Result<void> start(Reactor& reactor, LinkObserver& observer) = 0;
  /// About to sleep in epoll: `wants_returns` if somebody waits for slots. Then look at has_input()
  /// again.
  virtual void announce_sleep() noexcept = 0;
  virtual void announce_awake() noexcept = 0;
  /// Called a few times a second: heartbeats, leases.
  virtual void tick(std::chrono::steady_clock::time_point now) = 0;
  /// Ends the link: every pipe gets `error`. `death_proved` frees the slots the peer had; otherwise
  /// they are quarantined. May be called again when the proof comes later.
  void fail(const Error& error, bool death_proved) TENDON_EXCLUDES(receive_mutex_);
  /// Says goodbye, closes sockets. Views that are still held keep their memory.
  virtual void shut_down() TENDON_REQUIRES(receive_mutex_) = 0;
  /// Says goodbye and ends with `error` in one step: how the peer answers the goodbye is not taken
  /// for the reason.
  void close(const Error& error) TENDON_EXCLUDES(receive_mutex_);
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  /// The kernel says that the peer's process is gone.
  [[nodiscard]] bool death_proved() const noexcept { return death_proved_.load(); }
  /// The error the link ended with.
  [[nodiscard]] Error end_error() const;
  /// The peer has not given a sign of life for a while, but is not proved dead.
  [[nodiscard]] bool suspect() const noexcept { return suspect_.load(std::memory_order_relaxed); }
  [[nodiscard]] virtual LinkStats stats() const = 0;

  /// Threads that wait for slots of this link; announce_sleep() looks at it.
  std::atomic<std::uint32_t> waiting_for_returns{0};
  /// Operations that wait for a flag in a segment of the peer; announce_sleep() looks at it.
  std::atomic<std::uint32_t> waiting_for_flags{0};

 protected:
  /// Finds the pipe and hands it over, or drops and counts it.
  void dispatch(Incoming&& incoming) TENDON_REQUIRES(receive_mutex_);
  [[nodiscard]] MessageSink* sink_of(std::uint32_t pipe) noexcept TENDON_REQUIRES(receive_mutex_);
  void fail_locked(const Error& error, bool death_proved) TENDON_REQUIRES(receive_mutex_);
  /// The peer said goodbye: pipes that are still open get `end_of_stream`.
  void end_in_order() TENDON_REQUIRES(receive_mutex_);
  /// What a subclass does when the link ends: unwatch, close sockets, free or quarantine slots.
  virtual void on_failed(bool death_proved) TENDON_REQUIRES(receive_mutex_) = 0;
  /// A protocol violation by the peer, naming it.
  [[nodiscard]] Error violation(std::string_view where, std::string detail) const;

  LinkObserver* observer_ = nullptr;
  std::atomic<bool> suspect_{false};
  std::uint64_t dropped_messages_ TENDON_GUARDED_BY(receive_mutex_) = 0;

 private:
  void tell_sinks(const Error& error) TENDON_REQUIRES(receive_mutex_);
  const Path path_;
  const PeerIdentity peer_;
  const std::string peer_name_;
  const std::uint64_t cap_bytes_;
  const std::uint64_t peer_cap_bytes_;
  mutable Mutex receive_mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<MessageSink>> sinks_
      TENDON_GUARDED_BY(receive_mutex_);
  // Sinks that were told so.
  std::vector<std::weak_ptr<MessageSink>> without_proof_ TENDON_GUARDED_BY(receive_mutex_);
  std::uint32_t last_opened_pipe_ TENDON_GUARDED_BY(receive_mutex_) = 0;
  // Most links carry one busy pipe.
  std::uint32_t last_pipe_ TENDON_GUARDED_BY(receive_mutex_) = 0;
  MessageSink* last_sink_ TENDON_GUARDED_BY(receive_mutex_) = nullptr;
  std::atomic<bool> ended_{false};
  std::atomic<bool> death_proved_{false};
  mutable Mutex end_mutex_ TENDON_ACQUIRED_AFTER(receive_mutex_);
  std::optional<Error> end_error_ TENDON_GUARDED_BY(end_mutex_);
};

}  // namespace tendon::v0::detail
