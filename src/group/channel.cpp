// SPDX-License-Identifier: Apache-2.0
#include "group/channel.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tendon/session/limits.hpp>

#include "core/text.hpp"
#include "transport/private_body.hpp"

namespace tendon::v0::detail {
namespace {

// Bytes of messages that the peer has not taken; one message of any size may go beyond.
constexpr std::uint64_t kWindowBytes = kPipeWindowBytes;
constexpr std::uint64_t kCreditBytes = kWindowBytes / 8;
// A message costs the receiver more than its bytes.
constexpr std::uint64_t kMessageCostBytes = 1024;

std::uint64_t cost_of(std::uint64_t message_bytes) { return message_bytes + kMessageCostBytes; }

// Its memory is free, and it will not arrive.
void end_unsent(Outbound& outbound, Error why) {
  outbound.failure = std::move(why);
  outbound.done.store(true, std::memory_order_release);
}

thread_local int deliveries = 0;
struct Delivery {
  Delivery() { ++deliveries; }
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;
  ~Delivery() { --deliveries; }
};

}  // namespace

void InboundMessage::credit() const {
  if (const auto from = channel.lock()) from->credit(*this);
}

Channel::Channel(std::shared_ptr<Engine> engine, std::shared_ptr<Link> link, std::uint32_t pipe,
                 std::weak_ptr<ChannelOwner> owner)
    : engine_(std::move(engine)), link_(std::move(link)), pipe_(pipe), owner_(std::move(owner)) {}

// Sending

void Channel::post(const Envelope& envelope, Bytes body) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = pipe_;
  descriptor.tag = static_cast<std::uint32_t>(envelope.kind);
  body = body.first(std::min(body.size(), kMaxPostBytes));
  descriptor.payload_bytes = body.size();
  descriptor.header_bytes = sizeof envelope;
  std::vector<std::byte> whole(body.begin(), body.end());
  const Bytes header = bytes_of(envelope);
  whole.insert(whole.end(), header.begin(), header.end());
  {
    const Lock lock(send_mutex_);
    descriptor.sequence = next_sequence_++;
  }
  link_->post(descriptor, whole);
}

void Channel::queue(std::shared_ptr<Outbound> outbound) {
  outbound->op.parts = outbound->parts;
  outbound->op.header = bytes_of(outbound->envelope);
  Descriptor& descriptor = outbound->op.descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = pipe_;
  descriptor.tag = static_cast<std::uint32_t>(outbound->envelope.kind);
  descriptor.header_bytes = sizeof(Envelope);
  descriptor.payload_bytes = 0;
  for (const BodyPart& part : outbound->parts)
    descriptor.payload_bytes = std::max(descriptor.payload_bytes, part.offset + part.size_bytes);
  {
    const Lock lock(send_mutex_);
    // Whoever loses the channel ends what is queued by then.
    if (loss_) return end_unsent(*outbound, *loss_);
    descriptor.sequence = next_sequence_++;
    (outbound->envelope.kind == EnvelopeKind::message ? messages_ : steps_)
        .push_back(std::move(outbound));
    queued_count_.fetch_add(1);
  }
  advance();
}

// What may be begun now.
std::deque<std::shared_ptr<Outbound>>* Channel::next_queue() {
  if (!steps_.empty()) return &steps_;
  if (messages_.empty()) return nullptr;
  const std::uint64_t open = sent_bytes_ - peer_took_bytes_.load(std::memory_order_acquire);
  return open < kWindowBytes ? &messages_ : nullptr;
}

bool Channel::advance() {
  if (!send_mutex_.try_lock()) return true;  // another thread does it
  const Lock lock(send_mutex_, kAdoptLock);
  for (;;) {
    if (begun_ == nullptr) {
      auto* const queue = next_queue();
      if (queue == nullptr) break;
      begun_ = std::move(queue->front());
      queue->pop_front();
      if (begun_->envelope.kind == EnvelopeKind::message)
        sent_bytes_ += cost_of(begun_->op.descriptor.payload_bytes);
    }
    const auto sent = link_->send(begun_->op, Deadline::never());
    if (sent && !*sent) return true;
    // Done, or the link is over: then its owner hears of it by on_link_failed().
    end_begun(sent ? std::nullopt : std::optional(sent.error()));
  }
  return !messages_.empty();
}

// It was sent, or is taken back for that reason, unless it is too late.
void Channel::end_begun(std::optional<Error> failure) {
  const std::shared_ptr<Outbound> ended = std::exchange(begun_, nullptr);
  queued_count_.fetch_sub(1);
  if (failure && link_->withdraw(ended->op)) {
    // The peer will not take it, so it does not count.
    if (ended->envelope.kind == EnvelopeKind::message)
      sent_bytes_ -= cost_of(ended->op.descriptor.payload_bytes);
    return end_unsent(*ended, *std::move(failure));
  }
  ended->handed_over.store(true, std::memory_order_relaxed);
  ended->done.store(true, std::memory_order_release);
}

bool Channel::withdraw(Outbound& outbound) {
  const Lock lock(send_mutex_);
  if (outbound.done.load(std::memory_order_acquire)) return false;
  const auto is_it = [&](const auto& queued) { return queued.get() == &outbound; };
  Error taken_back{ErrorCode::cancelled, "group.channel", "it was taken back"};
  if (begun_ != nullptr && is_it(begun_)) {
    end_begun(std::move(taken_back));
    return !outbound.handed_over;
  }
  queued_count_.fetch_sub(std::erase_if(steps_, is_it) + std::erase_if(messages_, is_it));
  end_unsent(outbound, std::move(taken_back));
  return true;
}

std::size_t Channel::take_back_held(std::uint64_t group, const Error& why) {
  const Lock lock(send_mutex_);
  std::uint64_t open = sent_bytes_ - peer_took_bytes_.load(std::memory_order_acquire);
  const std::size_t taken_back = std::erase_if(messages_, [&](const auto& queued) {
    const bool held = open >= kWindowBytes;
    if (held && queued->envelope.group == group) {
      end_unsent(*queued, why);
      return true;
    }
    open += cost_of(queued->op.descriptor.payload_bytes);
    return false;
  });
  queued_count_.fetch_sub(taken_back);
  return taken_back;
}

// Does the sender keep to the window? One message of any size may go beyond.
bool Channel::count_in(std::uint64_t message_bytes) {
  const Lock lock(credit_mutex_);
  const bool in_window = came_bytes_ - taken_bytes_ < kWindowBytes;
  came_bytes_ += cost_of(message_bytes);
  return in_window;
}

void Channel::credit(const InboundMessage& message) {
  if (lost()) return;
  Descriptor descriptor;
  descriptor.kind = MessageKind::credit;
  descriptor.pipe = pipe_;
  {
    const Lock lock(credit_mutex_);
    taken_bytes_ += cost_of(message.size_bytes);
    if (taken_bytes_ - told_bytes_ < kCreditBytes) return;
    descriptor.payload_bytes = told_bytes_ = taken_bytes_;
  }
  link_->post(descriptor);
}

bool Channel::flushed() {
  if (lost()) return true;
  if (queued_count() != 0) return false;
  if (link_->delivers_at_once() || acknowledged_) return true;
  if (asked_.exchange(true)) return false;
  Descriptor ping;
  ping.kind = MessageKind::ping;
  ping.pipe = pipe_;
  {
    const Lock lock(send_mutex_);
    ping.sequence = next_sequence_ - 1;
  }
  link_->post(ping);
  return false;
}

void Channel::close() {
  if (!lost_.exchange(true)) {
    Descriptor end;
    end.kind = MessageKind::end;
    end.pipe = pipe_;
    link_->post(end);
  }
  // Also of a lost one: the link would keep it, and count it, as long as it lives.
  const Lock receiving(link_->receive_mutex());
  link_->detach(pipe_);
}

// Receiving

bool Channel::delivering_here() { return deliveries != 0; }

bool Channel::admits(const Descriptor& descriptor) {
  if (!lost() && descriptor.kind == MessageKind::bytes &&
      is_control(static_cast<EnvelopeKind>(descriptor.tag & 0xff)) &&
      descriptor.payload_bytes > kMaxPostBytes)
    violation("a control message of " + std::to_string(descriptor.payload_bytes) + " bytes");
  return !lost();
}

void Channel::on_message(Incoming&& incoming) {
  link_->receive_mutex().assert_held();
  const Delivery delivery;
  if (lost()) return;
  const Descriptor& descriptor = incoming.descriptor;
  switch (descriptor.kind) {
    case MessageKind::bytes:
      break;
    case MessageKind::credit: {
      const std::uint64_t total = descriptor.payload_bytes;
      if (total > sent_bytes_) return violation("credit for more than it was sent");
      if (total >= peer_took_bytes_.load()) peer_took_bytes_.store(total);
      advance();
      return;
    }
    case MessageKind::end:
    case MessageKind::cancel:
      return lose(
          Error{ErrorCode::end_of_stream, "group.channel", link_->peer_name() + " has left"},
          Absence::proved);
    case MessageKind::error:
      if (descriptor.tag == static_cast<std::uint32_t>(ErrorCode::unreachable)) {
        return lose(Error{ErrorCode::end_of_stream, "group.channel",
                          link_->peer_name() + " has closed its listener"},
                    Absence::proved);
      }
      return lose(Error{ErrorCode::peer_lost, "group.channel",
                        link_->peer_name() + " ended the channel: " +
                            cleaned({reinterpret_cast<const char*>(incoming.body.data),
                                     static_cast<std::size_t>(descriptor.body_bytes())})},
                  Absence::proved);
    case MessageKind::ack:
      acknowledged_ = true;
      return;
    default:
      return violation("a message of kind " + std::string(to_string(descriptor.kind)));
  }
  if (descriptor.header_bytes != sizeof(Envelope) || descriptor.values_bytes != 0)
    return violation("a message without an envelope");
  if (incoming.arrived() &&
      (arriving_.empty() || is_control(static_cast<EnvelopeKind>(descriptor.tag & 0xff))))
    return deliver(std::move(incoming));
  arriving_.push_back(std::move(incoming));
  arriving_count_ = arriving_.size();
}

void Channel::on_transfer_ended(const Transfer&) {
  link_->receive_mutex().assert_held();
  const Delivery delivery;
  hand_over();
}

void Channel::hand_over() {
  while (!arriving_.empty()) {
    Incoming& front = arriving_.front();
    if (front.aborted()) {
      arriving_.pop_front();
      arriving_count_ = arriving_.size();
      continue;
    }
    if (!front.arrived()) return;
    Incoming whole = std::move(front);
    arriving_.pop_front();
    deliver(std::move(whole));
    arriving_count_ = arriving_.size();
  }
}

void Channel::deliver(Incoming&& incoming) {
  if (const Error* failure = incoming.body.failure()) return lose(*failure, Absence::assumed);
  const std::uint64_t payload = incoming.descriptor.payload_bytes;
  const std::byte* const data = incoming.body.data;
  const auto envelope = read_envelope({data + payload, sizeof(Envelope)});
  if (!envelope || static_cast<std::uint32_t>(envelope->kind) != incoming.descriptor.tag)
    return violation("an envelope of an unknown kind");
  if (envelope->kind == EnvelopeKind::message && !count_in(payload))
    return violation("more than this side has taken and " + std::to_string(kWindowBytes >> 20) +
                     " MiB of messages");
  if (is_control(envelope->kind) && incoming.body.place == IncomingBody::Place::peer_slot) {
    if (payload > kMaxPostBytes)
      return violation("a control message of " + std::to_string(payload) + " bytes");
    // It may be kept for long, and is looked at more than once, while the peer may write there.
    IncomingBody copy = make_private_body(payload);
    if (payload != 0) std::memcpy(copy.data, data, payload);
    incoming.body = std::move(copy);
  }
  if (auto owner = owner_.lock())
    owner->on_inbound(
        *this, InboundMessage{*envelope, std::move(incoming.body), payload, weak_from_this()});
}

Result<void> Channel::on_segment(std::uint32_t id, std::shared_ptr<Segment> segment) {
  published_.add(id, std::move(segment));
  return {};
}

// A member whose memory cannot be read cannot be worked with.
void Channel::on_segment_failed(std::uint32_t, const Error& error) {
  const Delivery delivery;
  lose(Error{error.code, "group.channel",
             "memory of " + link_->peer_name() + " cannot be mapped here: " + error.detail,
             error.system_errno},
       Absence::assumed);
}

void Channel::violation(std::string_view what) {
  lose(Error{ErrorCode::protocol_violation, "group.channel",
             "peer " + link_->peer_name() + " sent " + std::string(what)},
       Absence::assumed);
}

void Channel::on_link_failed(const Error& error) {
  const Delivery delivery;
  const bool gone = error.code == ErrorCode::end_of_stream || link_->death_proved();
  lose(error, gone ? Absence::proved : Absence::assumed);
}

void Channel::on_death_proved() {
  const Delivery delivery;
  if (auto owner = owner_.lock()) {
    owner->on_channel_lost(
        *this, Error{ErrorCode::peer_lost, "group.channel", link_->peer_name() + " died"},
        Absence::proved);
  }
}

void Channel::lose(const Error& error, Absence how) {
  if (lost_.exchange(true)) return;
  {
    const Lock lock(send_mutex_);
    loss_ = error;
    // The link will not look at them again: it is over, or they are taken back.
    if (begun_ != nullptr) end_begun(error);
    for (auto* queue : {&steps_, &messages_}) {
      for (const auto& outbound : *queue) end_unsent(*outbound, error);
      queue->clear();
    }
    queued_count_ = 0;
  }
  if (auto owner = owner_.lock()) owner->on_channel_lost(*this, error, how);
}

}  // namespace tendon::v0::detail
