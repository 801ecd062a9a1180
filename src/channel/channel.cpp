// SPDX-License-Identifier: Apache-2.0
#include "channel/channel.hpp"

#include <string>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/peer_error.hpp"
#include "core/text.hpp"

namespace tendon::v0::detail {

// NOLINTNEXTLINE(performance-unnecessary-value-param): overrides keep the segment
Result<void> ChannelEvents::on_segment(std::uint32_t id, std::shared_ptr<Segment>) {
  return Error{ErrorCode::protocol_violation, "channel.segment",
               "segment " + std::to_string(id) + " was published on a channel that takes none"};
}

Channel::Channel(std::shared_ptr<Link> link, const Options& options, ChannelEvents& owner)
    : link_(std::move(link)),
      options_(options),
      owner_(owner),
      receiver_(options.pipe, options.window, link_->cap_bytes(), link_->budget()) {}

// Events of the link

void Channel::on_message(Incoming&& incoming) {
  link_->receive_mutex().assert_held();
  const Descriptor& descriptor = incoming.descriptor;
  switch (descriptor.kind) {
    case MessageKind::data:
    case MessageKind::bytes:
    case MessageKind::schema:
    case MessageKind::end:
      return take_in(std::move(incoming));
    case MessageKind::cancel:
      if (descriptor.sequence != 0 && options_.cancels == Cancels::requests)
        return take_in(std::move(incoming));
      return end(State::cancelled,
                 Error{ErrorCode::cancelled, options_.where,
                       "peer " + link_->peer_name() + " cancelled " + std::string(options_.noun)});
    case MessageKind::credit:
      // Even if it seems to count too much: the own count may be a moment behind.
      if (options_.sending != nullptr) (void)options_.sending->on_credit(descriptor);
      return owner_.on_room();
    case MessageKind::ack:
      if (options_.sending != nullptr) options_.sending->on_ack(descriptor);
      return;
    case MessageKind::error:
      return end(State::refused, said_by_peer(incoming));
    case MessageKind::head:
      return owner_.on_head(descriptor.sequence);
    default:
      return;  // nothing else is useful here
  }
}

void Channel::take_in(Incoming&& incoming) {
  if (!is_open()) {
    ++late_count_;
    return;
  }
  // A small message arrives without a question.
  if (is_too_large(incoming.descriptor)) return;
  if (incoming.descriptor.device_parts != 0 && !options_.takes_gpus)
    return break_off(violation("sent tensors on a GPU, which only pipes take"));
  const std::uint64_t sequence = incoming.descriptor.sequence;
  if (incoming.descriptor.kind == MessageKind::end && !said_end_) {
    said_end_ = incoming.descriptor;
    owner_.on_end_said(*said_end_);
  }
  switch (receiver_.accept(std::move(incoming))) {
    case ChannelReceiver::Fault::none:
      return owner_.on_arrived();
    case ChannelReceiver::Fault::repeated:
      return break_off(violation("repeated message " + std::to_string(sequence)));
    case ChannelReceiver::Fault::beyond_window:
      return break_off(violation("sent more than the window of " +
                                 std::to_string(receiver_.window().messages) + " messages"));
  }
}

// True: the peer was told.
bool Channel::is_too_large(const Descriptor& descriptor) {
  if (descriptor.body_bytes() <= options_.most_bytes) return false;
  break_off(Error{ErrorCode::limit_exceeded, options_.where,
                  "peer " + link_->peer_name() + " sent a message of " +
                      std::to_string(descriptor.body_bytes()) + " bytes; " +
                      std::to_string(options_.most_bytes) + " are legal here"});
  return true;
}

bool Channel::admits(const Descriptor& descriptor) {
  link_->receive_mutex().assert_held();
  if (!is_open()) return false;
  if (is_too_large(descriptor)) return false;
  if (receiver_.admits(descriptor)) return true;
  break_off(violation("sent " + std::to_string(descriptor.payload_bytes) + " bytes while " +
                      std::to_string(receiver_.waiting_bytes()) + " wait, beyond the window of " +
                      std::to_string(receiver_.window().bytes) + " bytes"));
  return false;
}

void Channel::on_transfer_ended(const Transfer& transfer) {
  link_->receive_mutex().assert_held();
  owner_.on_transfer_ended(transfer);
  receiver_.on_transfer_ended(transfer);
  owner_.on_arrived();
}

Channel::Head Channel::look_further() {
  while (!receiver_.empty()) {
    Incoming& head = receiver_.front();
    if (head.aborted()) {
      if (head.device != nullptr)
        post(receiver_.drop_incomplete());
      else
        (void)receiver_.pop_front();
      continue;
    }
    if (!head.arrived()) return Head::nothing;
    switch (head.descriptor.kind) {
      case MessageKind::schema: {
        const Incoming schema = receiver_.pop_front();
        // Each message of an unreadable schema reports why; the others can be read.
        (void)receiver_.read_schema(schema, offers());
        break;
      }
      case MessageKind::end: {
        const Descriptor said = receiver_.pop_front().descriptor;
        (void)receiver_.clear();
        owner_.on_end_read(said);
        read_end();
        break;
      }
      case MessageKind::cancel:
        return Head::withdrawal;
      default:
        return Head::message;
    }
  }
  return Head::nothing;
}

// Its end

void Channel::read_end() {
  Error why{ErrorCode::end_of_stream, options_.where,
            "peer " + link_->peer_name() + " ended " + std::string(options_.noun)};
  if (is_open()) return end(State::ended, std::move(why));
  become(State::ended, std::move(why));
}

void Channel::on_link_failed(const Error& error) {
  link_->receive_mutex().assert_held();
  end(State::lost, error);
}

Error Channel::said_by_peer(const Incoming& incoming) const {
  const Descriptor& descriptor = incoming.descriptor;
  const Bytes text{incoming.body.data, descriptor.body_bytes()};
  return Error{code_from_peer(descriptor.tag, PeerSays::pipe).value_or(ErrorCode::cancelled),
               options_.where,
               "peer " + link_->peer_name() + " ended " + std::string(options_.noun) + ": " +
                   cleaned(as_text(text), kMaxReasonBytes)};
}

Error Channel::violation(std::string_view what) const {
  return Error{ErrorCode::protocol_violation, options_.where,
               "peer " + link_->peer_name() + " " + std::string(what)};
}

void Channel::break_off(Error why) {
  if (!link_->ended()) link_->post_error(options_.pipe, why.code, why.detail);
  end(State::broken, std::move(why));
}

void Channel::give_up(Error why) {
  if (!link_->ended()) link_->post_error(options_.pipe, why.code, why.detail);
  (void)receiver_.clear();
  if (is_open()) return end(State::refused, std::move(why));
  // Also after its end: nothing is delivered any more.
  become(State::refused, std::move(why));
}

void Channel::end(State state, Error why) {
  if (state != State::ended) owner_.on_peer_gone(state, why);
  if (!is_open()) return;
  become(state, std::move(why));
  owner_.on_over();
}

void Channel::become(State state, Error why) {
  why_ = std::move(why);
  state_.store(state, std::memory_order_release);
}

void Channel::stop(Error why) {
  if (is_open()) become(State::closed, std::move(why));
}

void Channel::stop() {
  const Lock receiving(link_->receive_mutex());
  stop(Error{ErrorCode::cancelled, options_.where, "this side closed the channel"});
}

void Channel::detach(Error why) {
  stop(std::move(why));
  link_->detach(options_.pipe);
}

void Channel::close(Says says) {
  stop();
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = options_.pipe;
  if (says == Says::always || state() == State::closed) post(end);
  const Lock receiving(link_->receive_mutex());
  link_->detach(options_.pipe);
  (void)receiver_.clear();
  receiver_.forget_schemas();
}

}  // namespace tendon::v0::detail
