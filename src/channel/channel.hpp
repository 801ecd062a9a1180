// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/error.hpp>
#include <vector>

#include "channel/receiver.hpp"
#include "channel/send_window.hpp"
#include "transport/link.hpp"
#include "transport/message_sink.hpp"

namespace tendon::v0::detail {

/// The owner of a channel, which handles its events. The link's receive lock is held during every
/// call: the owner moves things and returns.
class ChannelEvents {
 public:
  /// The state of a channel: see Channel.
  enum class State : std::uint8_t { open, ended, refused, cancelled, lost, broken, closed };

  virtual ~ChannelEvents() = default;
  /// Called when the inbox has changed: Channel::look() says whether there is something to take.
  virtual void on_arrived() {}
  /// Called when the peer has taken messages: others may have room.
  virtual void on_room() {}
  /// Called once: nothing more arrives. Channel::state() and why() say how it ended; earlier
  /// messages may still be taken.
  virtual void on_over() {}
  /// Called when the peer takes nothing more: it is refused, cancelled, lost or broken. Called
  /// before on_over(), and also if that followed the peer's end.
  virtual void on_peer_gone(State, const Error&) {}
  /// Called when the peer has sent its end, which may still wait behind messages.
  virtual void on_end_said(const Descriptor&) {}
  /// Called once when the end is next to be taken, even if the channel is over by then.
  virtual void on_end_read(const Descriptor&) {}
  /// True if this message may be written straight to its receiver's memory; see MessageSink.
  virtual bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) { return false; }
  /// Called when a transfer of a partly arrived message is complete or aborted. on_arrived()
  /// follows.
  virtual void on_transfer_ended(const Transfer&) {}
  /// Called when the peer has said how many samples it published.
  virtual void on_head(std::uint64_t) {}
  /// Called when the peer lets this side read a segment. An unexpected one ends the link.
  virtual Result<void> on_segment(std::uint32_t id, std::shared_ptr<Segment> segment);
  /// Called when the peer is proved dead after the link had ended without a proof.
  virtual void on_death_proved() {}
};

/// One numbered conversation on a link, as this side hears it: the only receiver of the link's
/// messages for it. It reads schemas, credits, ends and errors itself; messages wait for the owner.
///
///   open -> ended      the peer's end was read: everything that it sent has been taken
///        -> refused    one side cannot continue, and said why
///        -> cancelled  the peer wants nothing of it any more
///        -> lost       the link is over
///        -> broken     the peer broke the protocol, and was told
///        -> closed     by this side
///   refused, lost -> ended   the end had arrived before
///
/// Earlier messages may be taken, unless the owner drops them.
///
/// Owns:    untaken messages; schemas of the peer; its link.
/// Threads: look(), receiver() and calls that end the channel need the link's receive lock; state()
///          is free. Lives in its owner: see sink_of().
/// Errors:  why().
/// Blocks:  never.
/// Cost:    a few additions and one call of the owner for each message.
class Channel final : public MessageSink {
 public:
  using State = ChannelEvents::State;
  enum class Head : std::uint8_t {
    nothing,    ///< nothing has arrived
    message,    ///< `data` or `bytes`, whole
    withdrawal  ///< `cancel` of the request that its sequence names
  };
  /// The meaning of a `cancel` that has a number: the channel too, or one request of many.
  enum class Cancels : std::uint8_t { channel, requests };
  struct Options {
    std::uint32_t pipe = 0;
    Window window{};                                ///< of this side's receiving
    std::uint64_t most_bytes = Window::kUnbounded;  ///< of one body
    SendWindow* sending = nullptr;                  ///< handles credits; null: this side sends none
    Cancels cancels = Cancels::channel;
    bool takes_gpus = false;                ///< accepts tensors that lay on GPUs of the peer
    std::string_view where = "channel";     ///< in errors
    std::string_view noun = "the channel";  ///< the thing that a peer ends: "its calls"
  };

  Channel(std::shared_ptr<Link> link, const Options& options, ChannelEvents& owner);

  /// The channel that is a member of `owner`, for Link::attach(): the link shares the owner.
  template <class Owner>
  [[nodiscard]] static std::shared_ptr<MessageSink> sink_of(std::shared_ptr<Owner> owner,
                                                            Channel& channel) {
    return {std::move(owner), &channel};
  }

  [[nodiscard]] Link& link() const noexcept { return *link_; }
  [[nodiscard]] const std::shared_ptr<Link>& shared_link() const noexcept { return link_; }
  [[nodiscard]] std::uint32_t pipe() const noexcept { return options_.pipe; }
  [[nodiscard]] Mutex& receive_mutex() const noexcept TENDON_RETURNS_LOCK(link_->receive_mutex()) {
    return link_->receive_mutex();
  }

  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
  [[nodiscard]] bool is_open() const noexcept { return state() == State::open; }
  /// Precondition: not open.
  [[nodiscard]] const Error& why() const TENDON_REQUIRES(link_->receive_mutex()) { return *why_; }
  /// The peer's end, read or not; empty: it has not arrived.
  [[nodiscard]] const std::optional<Descriptor>& said_end() const
      TENDON_REQUIRES(link_->receive_mutex()) {
    return said_end_;
  }
  /// Messages that arrived after the channel was over.
  [[nodiscard]] std::uint64_t late_count() const TENDON_REQUIRES(link_->receive_mutex()) {
    return late_count_;
  }

  // Receiving
  /// Handles everything that is no message until one is at the head.
  [[nodiscard]] Head look() TENDON_REQUIRES(link_->receive_mutex()) {
    if (receiver_.empty()) return Head::nothing;
    const Incoming& head = receiver_.front();
    const MessageKind kind = head.descriptor.kind;
    const bool is_message = kind == MessageKind::data || kind == MessageKind::bytes;
    const bool is_here = head.transfer == nullptr && head.device == nullptr;
    return is_message && is_here ? Head::message : look_further();
  }
  [[nodiscard]] ChannelReceiver& receiver() TENDON_REQUIRES(link_->receive_mutex()) {
    return receiver_;
  }
  [[nodiscard]] const ChannelReceiver& receiver() const TENDON_REQUIRES(link_->receive_mutex()) {
    return receiver_;
  }
  /// Tells the peer that messages were taken, unless the link has ended. A `credit` with pipe 0 is
  /// none.
  void post(const Descriptor& credit) const {
    if (credit.pipe != 0 && !link_->ended()) link_->post(credit);
  }

  // Its end
  /// Ends the channel because the peer broke a rule, and tells it why.
  void break_off(Error why) TENDON_REQUIRES(link_->receive_mutex());
  /// Ends the channel because this side cannot continue, and says why.
  void give_up(Error why) TENDON_REQUIRES(link_->receive_mutex());
  /// "peer X: " and its violation.
  [[nodiscard]] Error violation(std::string_view what) const;
  /// Stops receiving, without further events. The owner drops its unsent messages, and calls
  /// detach() or close() next.
  void stop(Error why) TENDON_REQUIRES(link_->receive_mutex());
  void stop() TENDON_EXCLUDES(link_->receive_mutex());
  /// Returns the pipe, without a word.
  void detach(Error why) TENDON_REQUIRES(link_->receive_mutex());
  /// Whether the peer hears of the end of a channel that was over already.
  enum class Says : std::uint8_t { always, while_open };
  /// Stops it, says the end, returns the pipe, and drops waiting messages.
  void close(Says says = Says::always) TENDON_EXCLUDES(link_->receive_mutex());

  // MessageSink
  void on_message(Incoming&& incoming) override;
  bool claim_destination(const Descriptor& descriptor,
                         std::vector<MutableBytes>& destination) override {
    return owner_.claim_destination(descriptor, destination);
  }
  bool admits(const Descriptor& descriptor) override;
  void on_transfer_ended(const Transfer& transfer) override;
  void on_device_tried() override { owner_.on_arrived(); }
  Result<void> on_segment(std::uint32_t id, std::shared_ptr<Segment> segment) override {
    return owner_.on_segment(id, std::move(segment));
  }
  void on_link_failed(const Error& error) override;
  void on_death_proved() override { owner_.on_death_proved(); }

 private:
  void take_in(Incoming&& incoming) TENDON_REQUIRES(link_->receive_mutex());
  [[nodiscard]] const DeviceOffers* offers() const TENDON_REQUIRES(link_->receive_mutex()) {
    return options_.takes_gpus ? &link_->device_offers : nullptr;
  }
  [[nodiscard]] bool is_too_large(const Descriptor& descriptor)
      TENDON_REQUIRES(link_->receive_mutex());
  [[nodiscard]] Head look_further() TENDON_REQUIRES(link_->receive_mutex());
  void read_end() TENDON_REQUIRES(link_->receive_mutex());
  [[nodiscard]] Error said_by_peer(const Incoming& incoming) const;
  void end(State state, Error why) TENDON_REQUIRES(link_->receive_mutex());
  void become(State state, Error why) TENDON_REQUIRES(link_->receive_mutex());

  const std::shared_ptr<Link> link_;
  const Options options_;
  ChannelEvents& owner_;
  ChannelReceiver receiver_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::atomic<State> state_{State::open};  // changed under the lock
  std::optional<Error> why_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::optional<Descriptor> said_end_ TENDON_GUARDED_BY(link_->receive_mutex());
  std::uint64_t late_count_ TENDON_GUARDED_BY(link_->receive_mutex()) = 0;
};

}  // namespace tendon::v0::detail
