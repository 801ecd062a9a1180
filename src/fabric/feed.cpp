// SPDX-License-Identifier: Apache-2.0
#include "fabric/feed.hpp"

#include <tendon/session/limits.hpp>
#include <utility>

#include "core/peer_error.hpp"
#include "core/text.hpp"
#include "memory/large_copy.hpp"
#include "runtime/waits_for.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.recv";

// A share of what a sample lies in, which counts while the program has it.
struct HeldBody {
  std::shared_ptr<std::atomic<std::uint32_t>> count;
  std::shared_ptr<const void> body;

  HeldBody(std::shared_ptr<std::atomic<std::uint32_t>> held, std::shared_ptr<const void> owner)
      : count(std::move(held)), body(std::move(owner)) {
    count->fetch_add(1, std::memory_order_relaxed);
  }
  HeldBody(const HeldBody&) = delete;
  HeldBody& operator=(const HeldBody&) = delete;
  ~HeldBody() { count->fetch_sub(1, std::memory_order_relaxed); }
};

Error violation(const Link& link, std::string_view what) {
  return Error{ErrorCode::protocol_violation, kWhere,
               "peer " + link.peer_name() + ": " + std::string(what)};
}

}  // namespace

/// One message, out of the inbox.
struct Feed::Message {
  Incoming incoming;
  std::shared_ptr<const Schema> schema;
  bool lent = false;
};

Feed::Feed(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link, std::uint32_t pipe,
           const Options& options, std::function<void()> on_over)
    : context_(std::move(context)),
      link_(std::move(link)),
      pipe_(pipe),
      max_held_(options.max_held),
      on_over_(std::move(on_over)),
      held_(std::make_shared<std::atomic<std::uint32_t>>(0)),
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
      message->lent = held_->load(std::memory_order_relaxed) < max_held_ && link_->lend(first.body);
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

// The body without its header, copied unless it may be kept as it is.
Result<Storage> Feed::body_of(Message& message, std::uint64_t size_bytes, Taken& taken) {
  IncomingBody& body = message.incoming.body;
  if (size_bytes == 0) return Storage();
  if (body.place == IncomingBody::Place::peer_slot && !message.lent) {
    taken.copied = true;
    TENDON_TRY(copy, Storage::allocate(size_bytes));
    copy_part({copy.data(), size_bytes}, {body.data, size_bytes}, size_bytes);
    body = {};  // the slot goes back now
    return copy;
  }
  const bool is_slot = body.place == IncomingBody::Place::peer_slot;
  return Storage(std::make_shared<HeldBody>(held_, std::move(body.owner)), body.data, size_bytes,
                 body.access, is_slot ? Origin::peer_slot : Origin::here);
}

Result<Feed::Taken> Feed::read(Message message) {
  const Descriptor descriptor = message.incoming.descriptor;
  const IncomingBody& body = message.incoming.body;
  if (const Error* failure = body.failure()) return *failure;
  const std::uint64_t values_at = descriptor.payload_bytes;
  const std::uint64_t header_at = values_at + descriptor.values_bytes;
  Taken taken;
  TENDON_TRY(header, read_sample_header({body.data + header_at, descriptor.header_bytes}));
  taken.header = header;
  taken.tag = descriptor.tag;
  if (descriptor.kind == MessageKind::bytes) {
    TENDON_TRY(bytes, body_of(message, descriptor.payload_bytes, taken));
    taken.bytes = std::move(bytes);
    return taken;
  }
  if (message.schema == nullptr)
    return violation(*link_, "sent a sample of a schema that it has not announced");
  const std::uint64_t expected = message.schema->layout(descriptor.layout).total_bytes;
  if (descriptor.payload_bytes != expected) {
    return violation(*link_, "sent " + std::to_string(descriptor.payload_bytes) +
                                 " bytes for a schema of " + std::to_string(expected));
  }
  std::shared_ptr<const Value> values;
  if (descriptor.values_bytes != 0) {
    // A copy first: the peer could change its slot while it is being read.
    const std::vector<std::byte> json(body.data + values_at, body.data + header_at);
    TENDON_TRY(parsed, parse_json(json));
    values = std::make_shared<const Value>(std::move(parsed));
  }
  TENDON_TRY(payload, body_of(message, descriptor.payload_bytes, taken));
  TENDON_TRY(tensors, TensorDict::from_packed(std::move(message.schema), descriptor.layout,
                                              std::move(payload), std::move(values)));
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
