// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/identity.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/session/path.hpp>

#include "memory/death.hpp"
#include "memory/segment.hpp"
#include "session/features.hpp"
#include "transport/device_offers.hpp"
#include "transport/link_life.hpp"
#include "transport/link_observer.hpp"
#include "transport/link_stats.hpp"
#include "transport/link_traits.hpp"
#include "transport/message.hpp"
#include "transport/message_sink.hpp"
#include "transport/reactor.hpp"
#include "transport/sink_table.hpp"

namespace tendon::v0::detail {

class Link;
class SharedMemoryLink;

/// Which side of a link this Context is.
enum class LinkRole : std::uint8_t { connector, acceptor };

/// A connection of two Contexts, whatever carries it; a pair may have one for each role and proof.
/// One conformance suite tests every implementation (tests/conformance).
///
/// Owns:    sockets, shared memory, the table of pipes.
/// Threads: sending under its own lock; receiving under receive_mutex(). Lock order: receive_mutex
///          before the sending lock. LinkObserver is called under receive_mutex(), never under the
///          sending lock.
/// Errors:  after fail() every call answers the error the link ended with, naming the peer.
/// Blocks:  never.
/// Cost:    shm: no system call unless the peer sleeps; stream: one call a frame.
class Link : public std::enable_shared_from_this<Link>, public FdHandler {
 public:
  Link(const LinkTraits& traits, Path path, PeerIdentity peer, std::uint64_t cap_bytes,
       std::uint64_t peer_cap_bytes);
  ~Link() override = default;

  [[nodiscard]] const LinkTraits& traits() const noexcept { return traits_; }
  /// What only shared memory can do; null elsewhere.
  [[nodiscard]] SharedMemoryLink* shared_memory() const noexcept { return shared_memory_; }
  [[nodiscard]] const Path& path() const noexcept { return path_; }
  [[nodiscard]] const PeerIdentity& peer() const noexcept { return peer_; }
  /// "vision (host a, pid 12)".
  [[nodiscard]] const std::string& peer_name() const noexcept { return peer_name_; }
  /// Bytes this side may have with the peer; bytes the peer may have here.
  [[nodiscard]] std::uint64_t cap_bytes() const noexcept { return cap_bytes_; }
  [[nodiscard]] std::uint64_t peer_cap_bytes() const noexcept { return peer_cap_bytes_; }

  /// What all channels of this link keep of what the peer said, beside messages that wait: schemas,
  /// for one. At most cap_bytes() together; a channel asks before it keeps anything.
  [[nodiscard]] HeldBytes& budget() noexcept { return budget_; }

  // Sending
  /// A slot that a message of `size_bytes` can travel in without a further copy. resource_exhausted
  /// means: try again when the peer gave something back (count in waiting_for_returns meanwhile).
  [[nodiscard]] virtual Result<std::shared_ptr<LoanedSlot>> acquire(std::uint64_t size_bytes) = 0;
  /// Was this slot taken from this link?
  [[nodiscard]] virtual bool owns(const LoanedSlot& slot) const = 0;
  /// Begins or continues to send. `deadline` is looked at between pieces of at most 1 MiB;
  /// `timeout` leaves the op as it is: withdraw() it or go on. An op that was dropped is `done`.
  [[nodiscard]] virtual Result<Sent> send(SendOp& op, Deadline deadline) = 0;
  /// The same, but the peer need not see it before show_and_ring(), which must follow when this is
  /// done: for one message to many links. Links without that difference send at once.
  [[nodiscard]] virtual Result<Sent> prepare(SendOp& op, Deadline deadline) {
    return send(op, deadline);
  }
  /// The parts of show_and_ring(), which has a full barrier between them.
  virtual void show() {}
  virtual void ring_behind_barrier() noexcept {}
  /// Takes what the peer gave back, also after the end. False: nothing.
  virtual bool collect_returns() { return false; }
  /// Takes back an op that is not done: it will not be delivered. False: too late, another thread
  /// finished it meanwhile and it will be delivered. Its memory is free when this returns.
  [[nodiscard]] virtual bool withdraw(SendOp& op) = 0;
  /// tcp: takes back the op of this lender, from any thread. Its sender hears of it when it goes on
  /// (SendOp::dropped). False: there is none.
  virtual bool drop(const LentSample&) { return false; }
  /// A small control message without body; queued when it cannot leave now, never blocks.
  virtual void post(const Descriptor& descriptor) = 0;
  /// A small message with a text body (kind `error`) or a header (kind `open`); queued likewise.
  virtual void post(const Descriptor& descriptor, Bytes body) = 0;
  /// The `error` that ends a pipe, or refuses it: the reason is escaped(), and cut.
  void post_error(std::uint32_t pipe, ErrorCode code, std::string_view reason);
  /// Makes memory for messages of this size exist before they are sent; may take long. A hint.
  virtual void prefault(std::uint64_t) {}
  /// What was posted and waits until the kernel or the ring has room for it.
  [[nodiscard]] virtual std::size_t posted_bytes() const noexcept { return 0; }
  /// Everything posted or sent so far lies with the kernel or in the ring.
  [[nodiscard]] virtual bool drained() = 0;

  // Receiving
  [[nodiscard]] Mutex& receive_mutex() const noexcept TENDON_RETURNS_LOCK(receive_mutex_) {
    return receive_mutex_;
  }
  /// A glance without a lock: would poll() find something that epoll does not tell?
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
  /// Both hellos have named these features, and this is our side. Called once, before start().
  void agree(Features features, LinkRole role) TENDON_EXCLUDES(receive_mutex_);
  [[nodiscard]] Features features() const noexcept { return features_; }
  [[nodiscard]] LinkRole role() const noexcept { return role_; }
  /// With Feature::purposes either side opens pipes, else the connecting one alone.
  [[nodiscard]] bool may_open() const noexcept {
    return role_ == LinkRole::connector || features_.has(Feature::purposes);
  }
  /// May the peer open a pipe under this number?
  [[nodiscard]] bool peer_may_open(std::uint32_t pipe) const noexcept;
  /// Numbers for pipes that this side opens: odd ones where it connected, else even ones; all where
  /// the peer opens none.
  [[nodiscard]] std::uint32_t next_pipe_id() noexcept TENDON_REQUIRES(receive_mutex_);
  [[nodiscard]] std::size_t pipe_count() const noexcept TENDON_REQUIRES(receive_mutex_) {
    return sinks_.count();
  }
  /// It carried pipes at its end: their calls return why it ended.
  [[nodiscard]] bool end_told_pipes() const noexcept TENDON_REQUIRES(receive_mutex_) {
    return sinks_.told_any();
  }
  /// How many it may carry.
  [[nodiscard]] std::uint32_t most_pipes() const noexcept {
    return features_.has(Feature::many_channels) ? kMaxPipesPerLink : kMaxPipesPerOldLink;
  }
  [[nodiscard]] std::string_view name_of_most_pipes() const noexcept {
    return features_.has(Feature::many_channels) ? "kMaxPipesPerLink" : "kMaxPipesPerOldLink";
  }
  [[nodiscard]] bool carries(std::uint32_t pipe) const TENDON_REQUIRES(receive_mutex_) {
    return sinks_.contains(pipe);
  }

  // Life
  /// Registers descriptors; called once, when the link is owned by a shared_ptr.
  [[nodiscard]] virtual Result<void> start(Reactor& reactor, LinkObserver& observer) = 0;
  /// About to sleep in epoll: asks for returns if a caller waits for them. Then look at has_input()
  /// again.
  virtual void announce_sleep() noexcept = 0;
  virtual void announce_awake() noexcept = 0;
  /// Called a few times a second: heartbeats, leases.
  virtual void tick(std::chrono::steady_clock::time_point now) = 0;
  /// Ends the link: every pipe gets `error`. A death that is proved frees the slots the peer had;
  /// otherwise they are quarantined. May be called again when the proof comes later.
  void fail(const Error& error, Death death) TENDON_EXCLUDES(receive_mutex_);
  /// Says goodbye, closes sockets. Views that are still held keep their memory.
  virtual void shut_down() TENDON_REQUIRES(receive_mutex_) = 0;
  /// The same, ending with `error` whatever the peer answers to the goodbye.
  void close(const Error& error) TENDON_EXCLUDES(receive_mutex_);
  /// close() of a link that both sides agreed to end; its end is nobody's leaving.
  void retire(const Error& error) TENDON_REQUIRES(receive_mutex_);
  /// Both sides agreed that it ends.
  [[nodiscard]] bool retired() const noexcept { return life_.agreed(); }
  [[nodiscard]] bool ended() const noexcept { return life_.ended(); }
  /// The kernel says that the peer's process is gone.
  [[nodiscard]] bool death_proved() const noexcept {
    return life_.state() == LinkLife::State::died;
  }
  [[nodiscard]] Error end_error() const;
  /// The peer has not given a sign of life for a while, but is not proved dead.
  [[nodiscard]] bool suspect() const noexcept { return suspect_.load(std::memory_order_relaxed); }
  [[nodiscard]] virtual LinkStats stats() const = 0;

  /// GPUs that the sides have named. What the peer said is guarded by receive_mutex().
  DeviceOffers device_offers;
  /// Threads that wait for slots of this link; announce_sleep() looks at it.
  std::atomic<std::uint32_t> waiting_for_returns{0};
  /// Channels of this link whose peer may read slots of the publish pool.
  std::atomic<std::uint32_t> publish_readers{0};
  /// Operations that wait for a flag in a segment of the peer; announce_sleep() looks at it.
  std::atomic<std::uint32_t> waiting_for_flags{0};

 protected:
  /// Finds the pipe and hands it over, or drops and counts it.
  void dispatch(Incoming&& incoming) TENDON_REQUIRES(receive_mutex_);
  [[nodiscard]] MessageSink* sink_of(std::uint32_t pipe) noexcept TENDON_REQUIRES(receive_mutex_) {
    return sinks_.find(pipe);
  }
  /// For stats(). Unchecked: the count may be read at any time.
  [[nodiscard]] std::uint64_t dropped_messages() const noexcept TENDON_UNCHECKED_LOCKS {
    return sinks_.dropped_count();
  }
  void fail_locked(const Error& error, Death death) TENDON_REQUIRES(receive_mutex_);
  /// The peer said goodbye: pipes that are still open get `end_of_stream`.
  void end_in_order() TENDON_REQUIRES(receive_mutex_);
  /// The peer said goodbye with this descriptor. That both sides agreed is believed only of a link
  /// that carries nothing.
  void note_goodbye(const Descriptor& goodbye) noexcept TENDON_REQUIRES(receive_mutex_) {
    if (goodbye.tag == 1 && features_.has(Feature::retire) && sinks_.count() == 0) life_.agree();
  }
  /// What this side says as its last word.
  [[nodiscard]] Descriptor goodbye() const noexcept;
  /// First thing in a destructor: sinks hold messages, which give back what they hold here.
  void drop_sinks() TENDON_EXCLUDES(receive_mutex_);
  /// What a subclass does when the link ends: unwatch, close sockets, free or quarantine slots.
  virtual void on_failed(Death death) TENDON_REQUIRES(receive_mutex_) = 0;
  /// A protocol violation by the peer, naming it.
  [[nodiscard]] Error violation(std::string_view where, std::string detail) const;

  LinkObserver* observer_ = nullptr;
  SharedMemoryLink* shared_memory_ = nullptr;  // set by a constructor
  std::atomic<bool> suspect_{false};
  HeldBytes budget_;

 private:
  void tell_sinks(const Error& error) TENDON_REQUIRES(receive_mutex_);
  const LinkTraits traits_;
  const Path path_;
  const PeerIdentity peer_;
  const std::string peer_name_;
  const std::uint64_t cap_bytes_;
  const std::uint64_t peer_cap_bytes_;
  mutable Mutex receive_mutex_;
  SinkTable sinks_ TENDON_GUARDED_BY(receive_mutex_);
  Features features_;
  LinkRole role_ = LinkRole::connector;
  std::uint32_t opened_count_ TENDON_GUARDED_BY(receive_mutex_) = 0;
  LinkLife life_;
};

/// Shows what was prepared on these links, with one barrier for all of them.
void show_and_ring(std::span<Link* const> links);

}  // namespace tendon::v0::detail
