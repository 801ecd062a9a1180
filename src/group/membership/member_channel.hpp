// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>

#include "channel/inbox.hpp"
#include "channel/receive_window.hpp"
#include "group/membership/agreement_message.hpp"
#include "group/membership/envelope.hpp"
#include "group/membership/held_steps.hpp"
#include "group/membership/outbox.hpp"
#include "group/membership/published_segments.hpp"
#include "runtime/context_core.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

class MemberChannel;

/// A message that has arrived whole.
struct InboundMessage {
  Envelope envelope;
  IncomingBody body;
  std::uint64_t size_bytes = 0;          ///< of the payload
  std::weak_ptr<MemberChannel> channel;  ///< on which it arrived
  HeldSteps::Part held{};                ///< of a step of a collective

  /// Tells the peer that it may send more: this side has taken it, or nobody will.
  void credit() const;
  [[nodiscard]] Bytes payload() const { return {body.data, size_bytes}; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(body.data), static_cast<std::size_t>(size_bytes)};
  }
};

/// The owner of a channel, which handles its messages. The link's receive lock is held during every
/// call.
class ChannelOwner {
 public:
  virtual ~ChannelOwner() = default;
  /// Called in order among messages of the same class (is_control or not).
  virtual void on_inbound(MemberChannel& channel, InboundMessage&& inbound) = 0;
  /// Called when nothing more will arrive; `end_of_stream` when the peer has left in order. Called
  /// once more when the loss is proved later.
  virtual void on_channel_lost(MemberChannel& channel, const Error& error, Absence how) = 0;
};

/// The conversation of a pair of members: a pipe of their link that carries envelopes.
///
/// Owns:    unsent messages, a share of the link.
/// Threads: thread-safe.
/// Errors:  a peer that breaks the protocol loses the channel.
/// Blocks:  never.
/// Cost:    that of the link.
class MemberChannel final : public MessageSink, public std::enable_shared_from_this<MemberChannel> {
 public:
  MemberChannel(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link,
                std::uint32_t pipe, std::weak_ptr<ChannelOwner> owner);

  [[nodiscard]] Link& link() const noexcept { return *link_; }
  /// Returns to the link what taken steps held. The caller holds no lock.
  void settle_steps() { held_steps_->settle(); }
  /// The memory that the peer lets this process read. It stays when the peer leaves or is replaced:
  /// a member that is later than the others may need it to finish with them.
  [[nodiscard]] PublishedSegments& published() noexcept { return published_; }
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  /// The reason, once the owner is about to hear of it; empty if this side has closed it.
  [[nodiscard]] std::optional<Error> loss() const { return outbox_.end_error(); }

  /// Sends a small message, past everything queued: at most kMaxPostBytes of body.
  void post(const Envelope& envelope, Bytes body = {});
  static constexpr std::size_t kMaxPostBytes = 4096;
  /// Queues a message and sends as much as can leave now.
  void queue(std::shared_ptr<Outbound> outbound);
  /// As in Outbox.
  bool withdraw(Outbound& outbound) { return outbox_.withdraw(outbound); }
  std::size_t take_back_held(std::uint64_t group, const Error& why) {
    return outbox_.take_back_held(group, why);
  }
  bool advance() { return outbox_.advance(); }
  void wait_for_sender() { outbox_.wait_for_sender(); }
  [[nodiscard]] std::size_t queued_count() const noexcept { return outbox_.count(); }
  /// True while announced data is on its way, even from a peer that has left since.
  [[nodiscard]] bool arriving() const noexcept { return arriving_count_.load() != 0; }
  /// As InboundMessage::credit().
  void credit(const InboundMessage& message);
  /// Loses the peer because it has broken the protocol.
  void violation(std::string_view what);
  /// Loses the peer because memory that this process needs was not mapped.
  void lose_unreadable(const Error& why) { lose(why, Absence::assumed); }
  /// True if the peer's link has all that was sent and queued, so that this side may close. Asks
  /// the peer at the first call.
  [[nodiscard]] bool flushed();
  /// Says that nothing more will follow, and stops listening.
  void close() TENDON_EXCLUDES(link_->receive_mutex());
  /// The same with the reason: the peer's program gets `why`.
  void refuse(const Error& why) TENDON_EXCLUDES(link_->receive_mutex());
  /// True inside a delivery of a link: this thread holds its receive lock.
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
  [[nodiscard]] bool count_in(std::uint64_t message_bytes) TENDON_EXCLUDES(credit_mutex_);

  const std::shared_ptr<Link> link_;
  const std::uint32_t pipe_;
  const std::weak_ptr<ChannelOwner> owner_;
  const std::shared_ptr<HeldSteps> held_steps_;
  PublishedSegments published_;
  std::atomic<bool> lost_{false};
  std::atomic<bool> asked_{false};  // the peer was asked if it has everything
  std::atomic<bool> acknowledged_{false};

  // Receiving: data in order of their descriptors; the first is not whole.
  Inbox arriving_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::atomic<std::size_t> arriving_count_{0};

  // Sending. Each message has its own number, by which a link knows what it has begun.
  std::atomic<std::uint64_t> last_sequence_{0};
  Outbox outbox_;

  // Counts the messages that have arrived, without control messages.
  Mutex credit_mutex_;
  ReceiveWindow received_ TENDON_GUARDED_BY(credit_mutex_);
};

}  // namespace tendon::v0::detail
