// SPDX-License-Identifier: Apache-2.0
#include "fabric/feed.hpp"

#include <tendon/session/limits.hpp>
#include <utility>

#include "core/peer_error.hpp"
#include "core/text.hpp"
#include "runtime/waits_for.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.recv";

Error violation(const Link& link, std::string_view what) {
  return Error{ErrorCode::protocol_violation, kWhere,
               "peer " + link.peer_name() + ": " + std::string(what)};
}

}  // namespace

/// One message, out of the inbox.
struct Feed::Message {
  Incoming incoming;
  std::shared_ptr<const Schema> schema;
  Lend lend = Lend::no;
};

Feed::Feed(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link, std::uint32_t pipe,
           const Options& options, std::function<void()> on_over)
    : context_(std::move(context)),
      link_(std::move(link)),
      pipe_(pipe),
      on_over_(std::move(on_over)),
      bodies_(kWhere, options.max_held),
      receiver_(pipe, options.window, link_->cap_bytes(), link_->budget()),
      gaps_(options.seen.sequence, options.rate),
      seen_(options.seen) {}

// What the link hands over

void Feed::on_message(Incoming&& incoming) {
  link_->receive_mutex().assert_held();
  if (state_ == State::broken) return;
  const Descriptor& descriptor = incoming.descriptor;
  switch (descriptor.kind) {
    case MessageKind::data:
    case MessageKind::bytes:
    case MessageKind::schema:
    case MessageKind::end:
      if (state_ != State::open) return;
      if (receiver_.accept(std::move(incoming)) != ChannelReceiver::Fault::none) {
        (void)receiver_.clear();
        end(State::broken, violation(*link_, "repeated a message, or sent more than the window"));
      }
      return;
    case MessageKind::error: {
      const Bytes text{incoming.body.data, descriptor.body_bytes()};
      return end(
          State::lost,
          Error{code_from_peer(descriptor.tag, PeerSays::pipe).value_or(ErrorCode::cancelled),
                kWhere,
                "peer " + link_->peer_name() +
                    " ended the channel: " + cleaned(as_text(text), kMaxReasonBytes)});
    }
    default:
      return;  // nothing else is of use to a subscriber
  }
}

bool Feed::admits(const Descriptor& descriptor) {
  link_->receive_mutex().assert_held();
  if (state_ != State::open) return false;
  if (receiver_.admits(descriptor)) return true;
  (void)receiver_.clear();
  end(State::broken, violation(*link_, "sent more bytes than the window has"));
  return false;
}

void Feed::on_transfer_ended(const Transfer& transfer) {
  link_->receive_mutex().assert_held();
  receiver_.on_transfer_ended(transfer);
}

void Feed::on_link_failed(const Error& error) {
  link_->receive_mutex().assert_held();
  end(State::lost, error);
}

void Feed::end(State state, Error why) {
  if (state_ != State::open) return;
  state_ = state;
  why_ = std::move(why);
  on_over_();
}

// Taking

// Acts on what is no sample until one is at the head.
Feed::Head Feed::look() {
  while (!receiver_.empty()) {
    Incoming& head = receiver_.front();
    if (head.aborted()) {
      (void)receiver_.pop_front();
      continue;
    }
    if (!head.arrived()) return Head::nothing;
    if (head.descriptor.kind == MessageKind::schema) {
      const Incoming schema = receiver_.pop_front();
      if (auto read = receiver_.read_schema(schema); !read) {
        (void)receiver_.clear();
        end(State::broken, violation(*link_, read.error().detail));
      }
    } else if (head.descriptor.kind == MessageKind::end) {
      last_gap_ = gaps_.on_end(head.descriptor.sequence, head.descriptor.payload_bytes);
      (void)receiver_.clear();
      end(State::ended, {});
    } else {
      return Head::sample;
    }
  }
  return Head::nothing;
}

std::optional<Feed::Message> Feed::next_message() {
  std::optional<Message> message;
  Descriptor credit;
  {
    Receiving receiving(*context_, *link_);
    link_->receive_mutex().assert_held();
    Head head = look();
    if (head == Head::nothing && !link_->ended() && receiving.poll()) head = look();
    if (head == Head::sample) {
      Incoming& first = receiver_.front();
      message.emplace();
      message->lend = bodies_.may_lend(*link_, first.body);
      credit = receiver_.take_front();
      message->incoming = receiver_.pop_front();
      taking_ = true;
      const Descriptor& descriptor = message->incoming.descriptor;
      untold_slot_ = (untold_slot_ || !descriptor.is_inline()) && credit.pipe == 0;
      if (descriptor.kind == MessageKind::data)
        message->schema = receiver_.schema(descriptor.schema);
    }
    // The publisher bounds what lies in slots by more than the window.
    if (untold_slot_ && receiver_.empty()) {
      credit = receiver_.tell();
      untold_slot_ = false;
    }
  }
  if (credit.pipe != 0) link_->post(credit);
  return message;
}

std::optional<Feed::Taken> Feed::take() {
  while (auto message = next_message()) {
    // No memory here is no fault of the publisher.
    const State after = message->incoming.body.failure() != nullptr ? State::lost : State::broken;
    auto taken = read(*std::move(message));
    if (!taken) {
      break_off(after, std::move(taken).error());
      return std::nullopt;
    }
    const Lock receiving(link_->receive_mutex());
    taking_ = false;
    const auto found = gaps_.on_sample(taken->header.sequence, taken->tag);
    if (found.order == GapFinder::Order::repeated) continue;
    seen_ = taken->header;
    taken->missing = found.missing;
    taken->thinned = found.thinned;
    return *std::move(taken);
  }
  return std::nullopt;
}

Result<Feed::Taken> Feed::read(Message message) {
  const Descriptor descriptor = message.incoming.descriptor;
  const IncomingBody& body = message.incoming.body;
  if (const Error* failure = body.failure()) return *failure;
  const std::uint64_t header_at = descriptor.payload_bytes + descriptor.values_bytes;
  Taken taken;
  TENDON_TRY(header, read_sample_header({body.data + header_at, descriptor.header_bytes}));
  taken.header = header;
  taken.tag = descriptor.tag;
  taken.copied = body.place == IncomingBody::Place::peer_slot && descriptor.payload_bytes != 0 &&
                 message.lend == Lend::no;
  if (descriptor.kind == MessageKind::bytes) {
    TENDON_TRY(bytes,
               bodies_.bytes_of(message.incoming.body, descriptor.payload_bytes, message.lend));
    taken.bytes = std::move(bytes);
    return taken;
  }
  TENDON_TRY(tensors,
             bodies_.tensors_of(*link_, message.incoming, std::move(message.schema), message.lend));
  taken.tensors = std::move(tensors);
  return taken;
}

// Its end

void Feed::break_off(State state, Error why) {
  link_->post(error_descriptor(pipe_, why.code, why.detail.substr(0, kMaxReasonBytes)),
              as_bytes(std::string_view(why.detail).substr(0, kMaxReasonBytes)));
  const Lock receiving(link_->receive_mutex());
  taking_ = false;
  (void)receiver_.clear();
  if (state_ == State::open) return end(state, std::move(why));
  state_ = state;  // also after its end: nothing is delivered any more
  why_ = std::move(why);
}

bool Feed::is_over() const {
  const Lock receiving(link_->receive_mutex());
  return state_ != State::open && receiver_.empty() && !taking_;
}

Feed::State Feed::state() const {
  const Lock receiving(link_->receive_mutex());
  return state_;
}

Error Feed::why() const {
  const Lock receiving(link_->receive_mutex());
  return why_.value_or(Error{ErrorCode::internal, kWhere, "the channel is open"});
}

SampleHeader Feed::seen() const {
  const Lock receiving(link_->receive_mutex());
  return seen_;
}

GapFinder::Found Feed::take_last_gap() {
  const Lock receiving(link_->receive_mutex());
  return std::exchange(last_gap_, {});
}

void Feed::close() {
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = pipe_;
  if (!link_->ended()) link_->post(end);
  const Lock receiving(link_->receive_mutex());
  link_->detach(pipe_);
  (void)receiver_.clear();
  receiver_.forget_schemas();
  if (state_ == State::open) state_ = State::ended;
}

}  // namespace tendon::v0::detail
