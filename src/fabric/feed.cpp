// SPDX-License-Identifier: Apache-2.0
#include "fabric/feed.hpp"

#include <algorithm>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/peer_error.hpp"
#include "core/text.hpp"
#include "fabric/head_pages.hpp"
#include "runtime/waits_for.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.recv";

Error violation(const Link& link, std::string_view what) {
  return Error{ErrorCode::protocol_violation, kWhere,
               "peer " + link.peer_name() + ": " + std::string(what)};
}

const std::byte* header_place(const Incoming& incoming) {
  const Descriptor& descriptor = incoming.descriptor;
  return incoming.body.data + descriptor.payload_bytes + descriptor.values_bytes;
}

// The header of a message that has arrived, from a copy of it; nothing where it cannot be read.
Result<SampleHeader> header_of(const Incoming& incoming) {
  if (const Error* failure = incoming.body.failure()) return *failure;
  return read_sample_header({header_place(incoming), incoming.descriptor.header_bytes});
}

}  // namespace

/// One message, out of the inbox.
struct Feed::Message {
  Incoming incoming;
  std::shared_ptr<const Schema> schema;
  Lend lend = Lend::no;
  SampleHeader header{};                ///< read once: a publisher may write there meanwhile
  std::unique_ptr<Error> unreadable{};  ///< why there is no header
};

Feed::Feed(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link, std::uint32_t pipe,
           const Options& options, std::shared_ptr<FeedQueue> queue)
    : context_(std::move(context)),
      link_(std::move(link)),
      pipe_(pipe),
      queue_(std::move(queue)),
      bodies_(kWhere, options.max_held),
      receiver_(pipe, options.window, link_->cap_bytes(), link_->budget()),
      gaps_(options.seen.sequence, options.rate),
      reached_(options.seen),
      left_(options.seen) {}

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
      if (descriptor.kind == MessageKind::end && !said_end_) {
        said_end_ = descriptor;
        queue_->note_changed(*this);
      }
      if (receiver_.accept(std::move(incoming)) != ChannelReceiver::Fault::none) {
        drop_what_waits();
        end(State::broken, violation(*link_, "repeated a message, or sent more than the window"));
      }
      return wait_if_there_is_more();
    case MessageKind::error: {
      const Bytes text{incoming.body.data, descriptor.body_bytes()};
      return end(
          State::lost,
          Error{code_from_peer(descriptor.tag, PeerSays::pipe).value_or(ErrorCode::cancelled),
                kWhere,
                "peer " + link_->peer_name() +
                    " ended the channel: " + cleaned(as_text(text), kMaxReasonBytes)});
    }
    case MessageKind::head:
      heard_ = std::max(heard_, descriptor.sequence);
      return;
    default:
      return;  // nothing else is of use to a subscriber
  }
}

// The page on which the publisher says how far it is.
Result<void> Feed::on_segment(std::uint32_t id, std::shared_ptr<Segment> segment) {
  link_->receive_mutex().assert_held();
  if (head_page_ == nullptr && segment->size_bytes() == HeadPage::kBytes &&
      link_->features().has(Feature::heads)) {
    head_page_ = std::move(segment);
    return {};
  }
  return violation(*link_, "segment " + std::to_string(id) + " of " +
                               std::to_string(segment->size_bytes()) +
                               " bytes was published on a topic, which has one head page of " +
                               std::to_string(HeadPage::kBytes));
}

bool Feed::admits(const Descriptor& descriptor) {
  link_->receive_mutex().assert_held();
  if (state_ != State::open) return false;
  if (receiver_.admits(descriptor)) return true;
  drop_what_waits();
  end(State::broken, violation(*link_, "sent more bytes than the window has"));
  return false;
}

void Feed::on_transfer_ended(const Transfer& transfer) {
  link_->receive_mutex().assert_held();
  receiver_.on_transfer_ended(transfer);
  wait_if_there_is_more();
}

void Feed::tell_again() {
  const Lock receiving(link_->receive_mutex());
  if (state_ == State::open) queue_->note_open(*this);
  wait_if_there_is_more();
  if (state_ != State::open || said_end_ || link_->death_proved()) queue_->note_changed(*this);
}

// While a receiver takes from it, that one looks when it is done.
void Feed::wait_if_there_is_more() {
  if (taking_) return;
  if (receiver_.has_arrived() || (state_ != State::open && receiver_.empty())) queue_->push(*this);
}

void Feed::on_link_failed(const Error& error) {
  link_->receive_mutex().assert_held();
  end(State::lost, error);
}

void Feed::end(State state, Error why) {
  if (state_ != State::open) return;
  state_ = state;
  why_ = std::move(why);
  queue_->note_closed(*this);
  queue_->note_changed(*this);
  queue_->push(*this);
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
      // The samples of a schema that cannot be read are missing, each by itself; the gaps say why.
      (void)receiver_.read_schema(schema);
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

bool Feed::next_message(Message& message) {
  Descriptor credit;
  Head head = Head::nothing;
  {
    Receiving receiving(*context_, *link_);
    link_->receive_mutex().assert_held();
    taking_ = true;
    head = look();
    if (head == Head::nothing && !link_->ended() && receiving.poll()) head = look();
    if (head == Head::sample) {
      Incoming& first = receiver_.front();
      if (first.body.failure() == nullptr) __builtin_prefetch(header_place(first));
      message.lend = bodies_.may_lend(*link_, first.body);
      before_ = left_;
      credit = receiver_.take_front();
      message.incoming = receiver_.pop_front();
      const Descriptor& descriptor = message.incoming.descriptor;
      untold_slot_ = (untold_slot_ || !descriptor.is_inline()) && credit.pipe == 0;
      if (descriptor.kind == MessageKind::data)
        message.schema = receiver_.schema(descriptor.schema);
      // Last: the publisher's processor has just written there.
      if (auto header = header_of(message.incoming)) {
        message.header = *header;
        note_reached(*header);
        left_ = *header;
      } else {
        message.unreadable = std::make_unique<Error>(std::move(header).error());
      }
    } else {
      taking_ = false;
      wait_if_there_is_more();
    }
    // The publisher bounds what lies in slots by more than the window.
    if (untold_slot_ && receiver_.empty()) {
      credit = receiver_.tell();
      untold_slot_ = false;
    }
  }
  if (credit.pipe != 0) link_->post(credit);
  return head == Head::sample;
}

std::optional<Feed::Taken> Feed::take() {
  for (Message message; next_message(message); message = {}) {
    Taken taken = read(std::move(message));
    // No memory here is no fault of the publisher: it is asked for the sample again.
    if (taken.unreadable && taken.unreadable->code == ErrorCode::resource_exhausted) {
      ask_again(std::move(*taken.unreadable));
      return std::nullopt;
    }
    const Lock receiving(link_->receive_mutex());
    taking_ = false;
    const bool is_numbered = taken.header.sequence != 0;
    const auto found = is_numbered ? gaps_.on_sample(taken.header.sequence, taken.tag)
                                   : gaps_.on_unreadable(taken.tag);
    if (found.order == GapFinder::Order::repeated) continue;
    if (!is_numbered && gaps_.last() != 0) {
      taken.header = reached_;
      taken.header.sequence = gaps_.last();
      note_reached(taken.header);
      left_ = taken.header;
    }
    taken.missing = found.missing;
    taken.thinned = found.thinned;
    taken.more = receiver_.has_arrived();
    if (!taken.more) wait_if_there_is_more();  // it may be over
    return taken;
  }
  return std::nullopt;
}

Feed::Taken Feed::read(Message&& message) {
  Taken taken;
  taken.tag = message.incoming.descriptor.tag;
  taken.header = message.header;
  taken.unreadable = std::move(message.unreadable);
  if (taken.unreadable) return taken;
  if (auto content = read_content(message, taken); !content)
    taken.unreadable = std::make_unique<Error>(std::move(content).error());
  return taken;
}

Result<void> Feed::read_content(Message& message, Taken& taken) {
  const Descriptor& descriptor = message.incoming.descriptor;
  taken.copied = message.incoming.body.place == IncomingBody::Place::peer_slot &&
                 descriptor.payload_bytes != 0 && message.lend == Lend::no;
  if (descriptor.kind == MessageKind::bytes) {
    TENDON_TRY(bytes,
               bodies_.bytes_of(message.incoming.body, descriptor.payload_bytes, message.lend));
    taken.bytes = std::move(bytes);
    return {};
  }
  TENDON_TRY(tensors,
             bodies_.tensors_of(*link_, message.incoming, std::move(message.schema), message.lend));
  taken.tensors = std::move(tensors);
  return {};
}

// Its end

// They are not delivered, so a new channel goes on behind the last one that was taken.
void Feed::drop_what_waits() {
  (void)receiver_.clear();
  reached_ = left_;
}

// The sample that left the inbox last is not delivered: a new channel brings it again.
void Feed::ask_again(Error why) {
  link_->post_error(pipe_, why.code, why.detail);
  const Lock receiving(link_->receive_mutex());
  taking_ = false;
  left_ = before_;
  drop_what_waits();
  if (state_ == State::open) return end(State::lost, std::move(why));
  state_ = State::lost;  // also after its end: nothing is delivered any more
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

bool Feed::is_ending() const {
  const Lock receiving(link_->receive_mutex());
  return state_ != State::open || said_end_.has_value() || link_->death_proved();
}

Error Feed::why() const {
  const Lock receiving(link_->receive_mutex());
  return why_.value_or(Error{ErrorCode::internal, kWhere, "the channel is open"});
}

void Feed::note_reached(const SampleHeader& header) {
  if (header.sequence > reached_.sequence) reached_ = header;
}

// Samples arrive in order: the last one that waits says how far the publisher has come.
void Feed::look_at_what_waits() {
  if (const Incoming* last = receiver_.last_arrived())
    if (const auto header = header_of(*last)) note_reached(*header);
}

SampleHeader Feed::reached() {
  const Lock receiving(link_->receive_mutex());
  look_at_what_waits();
  return reached_;
}

std::optional<std::uint64_t> Feed::head() const {
  return head_page_ == nullptr ? std::nullopt : HeadWord::load(*head_page_, reached_.head);
}

std::uint64_t Feed::last_known() const {
  return std::max({reached_.sequence, heard_, head().value_or(0)});
}

std::optional<Feed::Ending> Feed::ending() {
  const Lock receiving(link_->receive_mutex());
  look_at_what_waits();
  if (said_end_) return Ending{EndReason::closed, said_end_->sequence, true};
  if (!link_->death_proved()) return std::nullopt;
  return Ending{EndReason::died, last_known(), head().has_value()};
}

Feed::Ending Feed::given_up(EndReason reason) {
  const Lock receiving(link_->receive_mutex());
  look_at_what_waits();
  return {reason, last_known(), false};
}

GapFinder::Found Feed::take_last_gap(const Ending& ending) {
  const Lock receiving(link_->receive_mutex());
  if (last_gap_ != GapFinder::Found{}) return std::exchange(last_gap_, {});
  return gaps_.on_loss(ending.last_published);  // nothing, where its end was read
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
  queue_->note_closed(*this);
}

}  // namespace tendon::v0::detail
