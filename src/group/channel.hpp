// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "group/agreement.hpp"
#include "group/envelope.hpp"
#include "group/published_segments.hpp"
#include "runtime/engine.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

class Channel;

/// A message that has arrived whole.
struct InboundMessage {
  Envelope envelope;
  IncomingBody body;
  std::uint64_t size_bytes = 0;    ///< of the payload
  std::weak_ptr<Channel> channel;  ///< that it came on

  /// This side has taken it, or nobody will: the peer may send more.
  void credit() const;
  [[nodiscard]] Bytes payload() const { return {body.data, size_bytes}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(body.data), static_cast<std::size_t>(size_bytes)};
  }
};

/// A message on its way out. Its memory is named by `parts` and held by `keep`, unless whoever
/// queued it waits until it is done or withdrawn.
struct Outbound {
  Envelope envelope;
  std::vector<BodyPart> parts;
  std::vector<Storage> keep;
  std::atomic<bool> done{false};         ///< its memory may be reused
  std::atomic<bool> handed_over{false};  ///< the link has taken all of it; set before `done`
  std::optional<Error> failure;          ///< else: why the link did not; set before `done`

  SendOp op;  ///< the channel's
};

/// Who is told of what comes on a channel. Every call comes under the link's receive lock.
class ChannelOwner {
 public:
  virtual ~ChannelOwner() = default;
  /// In order among messages of the same class (is_control or not).
  virtual void on_inbound(Channel& channel, InboundMessage&& inbound) = 0;
  /// Nothing more will come; `end_of_stream` when the peer has left in order. Once more when it is
  /// proved later.
  virtual void on_channel_lost(Channel& channel, const Error& error, Absence how) = 0;
};

/// What a pair of members says to each other: a pipe of their link that carries envelopes.
///
/// Owns:    its queue of outgoing messages, a share of the link.
/// Threads: thread-safe.
/// Errors:  a peer that breaks the protocol loses the channel.
/// Blocks:  never.
/// Cost:    that of the link.
class Channel final : public MessageSink, public std::enable_shared_from_this<Channel> {
 public:
  Channel(std::shared_ptr<Engine> engine, std::shared_ptr<Link> link, std::uint32_t pipe,
          std::weak_ptr<ChannelOwner> owner);

  [[nodiscard]] Link& link() const noexcept { return *link_; }
  /// What the peer lets this process read. It stays when the peer leaves or is replaced: a member
  /// that is later than the others may need it to finish with them.
  [[nodiscard]] PublishedSegments& published() noexcept { return published_; }
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  /// Why, once the owner is about to hear of it; nothing if this side has closed it.
  [[nodiscard]] std::optional<Error> loss() const {
    const Lock lock(send_mutex_);
    return loss_;
  }

  /// A small message, past everything queued: at most kMaxPostBytes of body.
  void post(const Envelope& envelope, Bytes body = {});
  static constexpr std::size_t kMaxPostBytes = 4096;
  /// Queues a message and sends what can be sent now. Messages (EnvelopeKind::message) wait until
  /// the peer has taken enough of the earlier ones; collectives never wait for them.
  void queue(std::shared_ptr<Outbound> outbound);
  /// Takes back a message that is not done; when this returns its memory is free. False when it was
  /// done already, or has been handed over now.
  bool withdraw(Outbound& outbound);
  /// Takes back the messages of this group that wait until the peer has taken earlier ones, which
  /// it may never do: they end with `why`. Answers how many.
  std::size_t take_back_held(std::uint64_t group, const Error& why);
  /// Sends what can be sent now. True while something is left.
  bool advance();
  /// When this returns, what another thread has sent meanwhile is noted in its message. Waits for
  /// that thread, not for the peer.
  void wait_for_sender() { const Lock lock(send_mutex_); }
  /// Data that was announced is still on its way, even from a peer that has left since.
  [[nodiscard]] bool arriving() const noexcept { return arriving_count_.load() != 0; }
  [[nodiscard]] std::size_t queued_count() const noexcept { return queued_count_.load(); }
  /// As InboundMessage::credit().
  void credit(const InboundMessage& message);
  /// The peer has broken the protocol: it is lost.
  void violation(std::string_view what);
  /// Has the peer's link all that was sent and queued, so that this side may go? Asks it the first
  /// time.
  [[nodiscard]] bool flushed();
  /// Says that nothing more comes, and stops listening.
  void close() TENDON_EXCLUDES(link_->receive_mutex());
  /// True inside of what a link delivers: this thread holds its receive lock.
  [[nodiscard]] static bool delivering_here();

  // MessageSink
  void on_message(Incoming&& incoming) override;
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor& descriptor) override;
  void on_transfer_ended(const Transfer& transfer) override;
  Result<void> on_segment(std::uint32_t id, std::shared_ptr<Segment> segment) override;
  void on_segment_failed(std::uint32_t id, const Error& error) override;
  void on_link_failed(const Error& error) override;
  void on_death_proved() override;
  [[nodiscard]] std::uint32_t pipe() const noexcept { return pipe_; }

 private:
  void hand_over() TENDON_REQUIRES(link_->receive_mutex());
  void deliver(Incoming&& incoming) TENDON_REQUIRES(link_->receive_mutex());
  void lose(const Error& error, Absence how);
  [[nodiscard]] std::deque<std::shared_ptr<Outbound>>* next_queue() TENDON_REQUIRES(send_mutex_);
  void end_begun(std::optional<Error> failure) TENDON_REQUIRES(send_mutex_);
  [[nodiscard]] bool count_in(std::uint64_t message_bytes);

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Link> link_;
  const std::uint32_t pipe_;
  const std::weak_ptr<ChannelOwner> owner_;
  PublishedSegments published_;
  std::atomic<bool> lost_{false};
  std::atomic<bool> asked_{false};  // whether the peer has everything
  std::atomic<bool> acknowledged_{false};

  // Receiving: data in order of their descriptors; the first is not whole.
  std::deque<Incoming> arriving_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::atomic<std::size_t> arriving_count_{0};

  // Sending
  mutable Mutex send_mutex_;
  std::deque<std::shared_ptr<Outbound>> steps_ TENDON_GUARDED_BY(send_mutex_);  // of collectives
  // From member to member.
  std::deque<std::shared_ptr<Outbound>> messages_ TENDON_GUARDED_BY(send_mutex_);
  // The one that the link has begun.
  std::shared_ptr<Outbound> begun_ TENDON_GUARDED_BY(send_mutex_);
  std::atomic<std::size_t> queued_count_{0};
  std::optional<Error> loss_ TENDON_GUARDED_BY(send_mutex_);  // what is queued now ends with it
  std::uint64_t next_sequence_ TENDON_GUARDED_BY(send_mutex_) = 1;

  // Of messages: what has come, what is taken here, and what the peer was told of that.
  Mutex credit_mutex_;
  std::uint64_t came_bytes_ TENDON_GUARDED_BY(credit_mutex_) = 0;
  std::uint64_t taken_bytes_ TENDON_GUARDED_BY(credit_mutex_) = 0;
  std::uint64_t told_bytes_ TENDON_GUARDED_BY(credit_mutex_) = 0;
  std::atomic<std::uint64_t> peer_took_bytes_{0};
  // Of messages that were begun and not taken back; written under send_mutex_.
  std::atomic<std::uint64_t> sent_bytes_{0};
};

}  // namespace tendon::v0::detail
