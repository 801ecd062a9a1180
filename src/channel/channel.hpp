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

/// The owner of a channel, which is told what happens on it. Every call is made under the link's
/// receive lock: the owner moves things and returns.
class ChannelEvents {
 public:
  /// How a channel is: see Channel.
  enum class State : std::uint8_t { open, ended, refused, cancelled, lost, broken, closed };

  virtual ~ChannelEvents() = default;
  /// The inbox has changed: Channel::look() says whether there is something to take.
  virtual void on_arrived() {}
  /// The peer has taken messages: others may have room.
  virtual void on_room() {}
  /// Once: nothing more arrives. Channel::state() and why() say how it ended; what has arrived
  /// before may be taken still.
  virtual void on_over() {}
  /// The peer takes nothing more: it is refused, cancelled, lost or broken. Before on_over(), and
  /// also where that was said because the peer's end was read.
  virtual void on_peer_gone(State, const Error&) {}
  /// The peer has sent its end, which may still wait behind messages.
  virtual void on_end_said(const Descriptor&) {}
  /// The end is the next that there is to take: once, also where the channel is over by then.
  virtual void on_end_read(const Descriptor&) {}
  /// May this message be written straight to where its receiver wants it? MessageSink says more.
  virtual bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) { return false; }
  /// A transfer of a message that arrived in part is complete, or aborted. on_arrived() follows.
  virtual void on_transfer_ended(const Transfer&) {}
  /// The peer has said how many samples it published.
  virtual void on_head(std::uint64_t) {}
  /// The peer lets this side read a segment. What an owner does not expect ends the link.
  virtual Result<void> on_segment(std::uint32_t id, std::shared_ptr<Segment> segment);
  /// The link had ended without a proof that the peer is dead: here it is.
  virtual void on_death_proved() {}
};

/// One numbered conversation on a link, as this side hears it: the only receiver of what a link
/// hands over. It reads schemas, credits, ends and errors itself; messages wait for the owner.
///
///   open -> ended      the peer's end was read: everything that it sent has been taken
///        -> refused    one side cannot go on, and said why
///        -> cancelled  the peer wants nothing of it any more
///        -> lost       the link is over
///        -> broken     the peer broke the protocol, and was told
///        -> closed     by this side
///   refused, lost -> ended   the end had arrived before
///
/// Messages that arrived before may be taken, unless the owner drops them.
///
/// Owns:    messages that have arrived and were not taken; schemas of the peer; its link.
/// Threads: look(), receiver() and what ends the channel need the link's receive lock; state() is
///          free. Lives in its owner: see sink_of().
/// Errors:  why().
/// Blocks:  never.
/// Cost:    of a message: a few additions, and one call of the owner.
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
    Window window{};                                ///< of what this side receives
    std::uint64_t most_bytes = Window::kUnbounded;  ///< of one body
    SendWindow* sending = nullptr;                  ///< told of credits; null: this side sends none
    Cancels cancels = Cancels::channel;
    bool takes_gpus = false;                ///< tensors that lay on GPUs of the peer
    std::string_view where = "channel";     ///< of errors
    std::string_view noun = "the channel";  ///< what a peer ends: "its calls"
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
  /// The peer's end, read or not; nothing: it has not arrived.
  [[nodiscard]] const std::optional<Descriptor>& said_end() const
      TENDON_REQUIRES(link_->receive_mutex()) {
    return said_end_;
  }
  /// Messages that arrived when the channel was over.
  [[nodiscard]] std::uint64_t late_count() const TENDON_REQUIRES(link_->receive_mutex()) {
    return late_count_;
  }

  // Receiving
  /// Acts on what is no message until one is at the head.
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
  /// Tells the peer that messages were taken, unless the link has ended. `credit`: none where its
  /// pipe is 0.
  void post(const Descriptor& credit) const {
    if (credit.pipe != 0 && !link_->ended()) link_->post(credit);
  }

  // Its end
  /// The peer broke a rule: it is told why.
  void break_off(Error why) TENDON_REQUIRES(link_->receive_mutex());
  /// This side cannot go on, and says why.
  void give_up(Error why) TENDON_REQUIRES(link_->receive_mutex());
  /// "peer X: " and what it did.
  [[nodiscard]] Error violation(std::string_view what) const;
  /// Nothing is taken in from here on, and the owner is told of nothing: it drops what it was to
  /// send, and detach() or close() follows.
  void stop(Error why) TENDON_REQUIRES(link_->receive_mutex());
  void stop() TENDON_EXCLUDES(link_->receive_mutex());
  /// Gives the pipe back, without a word.
  void detach(Error why) TENDON_REQUIRES(link_->receive_mutex());
  /// Does the peer hear of the end of a channel that was over already?
  enum class Says : std::uint8_t { always, while_open };
  /// Stops it, says the end, gives the pipe back, and drops what waits.
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
