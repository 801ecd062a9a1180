// SPDX-License-Identifier: Apache-2.0
#include "group/membership/member_channel.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tendon/observe/log.hpp>

#include "core/text.hpp"
#include "group/membership/messages_window.hpp"
#include "transport/private_body.hpp"

namespace tendon::v0::detail {
namespace {

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

MemberChannel::MemberChannel(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link,
                             std::uint32_t pipe, std::weak_ptr<ChannelOwner> owner)
    : link_(std::move(link)),
      pipe_(pipe),
      owner_(std::move(owner)),
      held_steps_(std::make_shared<HeldSteps>(std::move(context), link_)),
      outbox_(*link_),
      received_(messages_window(link_->cap_bytes()), link_->cap_bytes()) {}

// Sending

void MemberChannel::post(const Envelope& envelope, Bytes body) {
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
  descriptor.sequence = ++last_sequence_;
  link_->post(descriptor, whole);
}

void MemberChannel::queue(std::shared_ptr<Outbound> outbound) {
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
  descriptor.sequence = ++last_sequence_;
  outbox_.add(std::move(outbound));
  outbox_.advance();
}

// True if the sender keeps to the window.
bool MemberChannel::count_in(std::uint64_t message_bytes) {
  const Lock lock(credit_mutex_);
  const bool in_window = received_.admits(kAnyBytes);
  received_.come(message_cost_bytes(message_bytes));
  return in_window;
}

void MemberChannel::credit(const InboundMessage& message) {
  if (lost()) return;
  Descriptor credit;
  {
    const Lock lock(credit_mutex_);
    credit = received_.take(pipe_, message_cost_bytes(message.size_bytes));
  }
  if (credit.pipe != 0) link_->post(credit);
}

bool MemberChannel::flushed() {
  if (lost()) return true;
  if (queued_count() != 0) return false;
  if (link_->traits().sent_is_delivered || acknowledged_) return true;
  if (asked_.exchange(true)) return false;
  Descriptor ping;
  ping.kind = MessageKind::ping;
  ping.pipe = pipe_;
  ping.sequence = last_sequence_;
  link_->post(ping);
  return false;
}

void MemberChannel::close() {
  if (!lost_.exchange(true)) {
    Descriptor end;
    end.kind = MessageKind::end;
    end.pipe = pipe_;
    link_->post(end);
  }
  // Also for a lost one: the link would keep it, and count it, as long as it lives.
  const Lock receiving(link_->receive_mutex());
  link_->detach(pipe_);
}

void MemberChannel::refuse(const Error& why) {
  if (!lost_.exchange(true)) {
    link_->post_error(pipe_, why.code, why.detail);
  }
  close();
}

// Receiving

bool MemberChannel::delivering_here() { return deliveries != 0; }

bool MemberChannel::admits(const Descriptor& descriptor) {
  if (!lost() && descriptor.kind == MessageKind::bytes &&
      is_control(static_cast<EnvelopeKind>(descriptor.tag & 0xff)) &&
      descriptor.payload_bytes > kMaxPostBytes)
    violation("a control message of " + std::to_string(descriptor.payload_bytes) + " bytes");
  return !lost();
}

void MemberChannel::on_message(Incoming&& incoming) {
  link_->receive_mutex().assert_held();
  const Delivery delivery;
  if (lost()) return;
  const Descriptor& descriptor = incoming.descriptor;
  switch (descriptor.kind) {
    case MessageKind::bytes:
      break;
    case MessageKind::credit:
      if (!outbox_.on_credit(descriptor)) return violation("credit for more than it was sent");
      outbox_.advance();
      return;
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
      return lose(Error{descriptor.tag == static_cast<std::uint32_t>(ErrorCode::server_busy)
                            ? ErrorCode::server_busy
                            : ErrorCode::peer_lost,
                        "group.channel",
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

void MemberChannel::on_transfer_ended(const Transfer&) {
  link_->receive_mutex().assert_held();
  const Delivery delivery;
  hand_over();
}

void MemberChannel::hand_over() {
  while (!arriving_.empty()) {
    Incoming& front = arriving_.front();
    if (front.aborted()) {
      (void)arriving_.pop_front();
      arriving_count_ = arriving_.size();
      continue;
    }
    if (!front.arrived()) return;
    Incoming whole = arriving_.pop_front();
    deliver(std::move(whole));
    arriving_count_ = arriving_.size();
  }
}

void MemberChannel::deliver(Incoming&& incoming) {
  if (const Error* failure = incoming.body.failure()) return lose(*failure, Absence::assumed);
  const std::uint64_t payload = incoming.descriptor.payload_bytes;
  const std::byte* const data = incoming.body.data;
  const auto envelope = read_envelope({data + payload, sizeof(Envelope)});
  if (!envelope || static_cast<std::uint32_t>(envelope->kind) != incoming.descriptor.tag)
    return violation("an envelope of an unknown kind");
  if (envelope->kind == EnvelopeKind::message && !count_in(payload))
    return violation("more than this side has taken and " +
                     std::to_string(messages_window(link_->cap_bytes()).bytes >> 20) +
                     " MiB of messages");
  if (is_control(envelope->kind) && incoming.body.place == IncomingBody::Place::peer_slot) {
    if (payload > kMaxPostBytes)
      return violation("a control message of " + std::to_string(payload) + " bytes");
    // The message may be kept for long and read repeatedly, while the peer may write there.
    IncomingBody copy = make_private_body(payload);
    if (payload != 0) std::memcpy(copy.data, data, payload);
    incoming.body = std::move(copy);
  }
  InboundMessage inbound{*envelope, std::move(incoming.body), payload, weak_from_this()};
  if (envelope->kind == EnvelopeKind::collective)
    inbound.held = HeldSteps::Part(held_steps_, std::move(incoming.held));
  if (auto owner = owner_.lock()) owner->on_inbound(*this, std::move(inbound));
}

Result<void> MemberChannel::on_segment(std::uint32_t id, std::shared_ptr<Segment> segment) {
  published_.add(id, std::move(segment));
  return {};
}

// A member cannot work without its board; without its pool it can, in another way.
void MemberChannel::on_segment_failed(std::uint32_t id, const Error& error) {
  Error why{error.code, "group.channel",
            "memory of " + link_->peer_name() + " cannot be mapped here: " + error.detail,
            error.system_errno};
  if (!published_.any_failed()) log(LogLevel::warn, why.where, why.detail);
  published_.add_failed(id, why);
}

void MemberChannel::violation(std::string_view what) {
  lose(Error{ErrorCode::protocol_violation, "group.channel",
             "peer " + link_->peer_name() + " sent " + std::string(what)},
       Absence::assumed);
}

void MemberChannel::on_link_failed(const Error& error) {
  const Delivery delivery;
  const bool gone = error.code == ErrorCode::end_of_stream || link_->death_proved();
  lose(error, gone ? Absence::proved : Absence::assumed);
}

void MemberChannel::on_death_proved() {
  const Delivery delivery;
  if (auto owner = owner_.lock()) {
    owner->on_channel_lost(
        *this, Error{ErrorCode::peer_lost, "group.channel", link_->peer_name() + " died"},
        Absence::proved);
  }
}

void MemberChannel::lose(const Error& error, Absence how) {
  if (lost_.exchange(true)) return;
  outbox_.end(error);
  if (auto owner = owner_.lock()) owner->on_channel_lost(*this, error, how);
}

}  // namespace tendon::v0::detail
