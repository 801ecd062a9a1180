// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/feed.hpp"

#include <algorithm>
#include <tendon/session/limits.hpp>
#include <utility>

#include "fabric/ports/head_pages.hpp"
#include "runtime/waits_for.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "subscriber.recv";

const std::byte* header_place(const Incoming& incoming) {
  const Descriptor& descriptor = incoming.descriptor;
  return incoming.body.data + descriptor.payload_bytes + descriptor.values_bytes;
}

// The header of a message that has arrived, from a copy of it; an error if it cannot be read.
Result<SampleHeader> header_of(const Incoming& incoming) {
  if (const Error* failure = incoming.body.failure()) return *failure;
  return read_sample_header({header_place(incoming), incoming.descriptor.header_bytes});
}

}  // namespace

/// One message, taken from the inbox.
struct Feed::Message {
  Incoming incoming;
  std::shared_ptr<const Schema> schema;
  std::shared_ptr<const Placement> placement;
  Lend lend = Lend::no;
  SampleHeader header{};                ///< read once: a publisher may write there meanwhile
  std::unique_ptr<Error> unreadable{};  ///< the reason for a missing header
};

Feed::Feed(std::shared_ptr<ContextCore> context, std::shared_ptr<Link> link, std::uint32_t pipe,
           const Options& options, std::shared_ptr<FeedQueue> queue)
    : context_(std::move(context)),
      queue_(std::move(queue)),
      bodies_(kWhere, options.max_held),
      channel_(std::move(link),
               {.pipe = pipe, .window = options.window, .takes_gpus = true, .where = kWhere},
               *this),
      gaps_(options.seen.sequence, options.rate),
      reached_(options.seen),
      left_(options.seen) {}

// Events of the channel

void Feed::on_end_read(const Descriptor& end) {
  channel_.receive_mutex().assert_held();
  last_gap_ = gaps_.on_end(end.sequence, end.payload_bytes);
}

void Feed::on_head(std::uint64_t sequence) {
  channel_.receive_mutex().assert_held();
  heard_ = std::max(heard_, sequence);
}

// Handles the page on which the publisher states its position.
Result<void> Feed::on_segment(std::uint32_t id, std::shared_ptr<Segment> segment) {
  channel_.receive_mutex().assert_held();
  if (head_page_ == nullptr && segment->size_bytes() == HeadPage::kBytes &&
      link()->features().has(Feature::heads)) {
    head_page_ = std::move(segment);
    return {};
  }
  return channel_.violation(
      "published segment " + std::to_string(id) + " of " + std::to_string(segment->size_bytes()) +
      " bytes on a topic, which has one head page of " + std::to_string(HeadPage::kBytes));
}

void Feed::tell_again() {
  const Lock receiving(channel_.receive_mutex());
  if (channel_.is_open()) queue_->note_open(*this);
  wait_if_there_is_more();
  if (!channel_.is_open() || channel_.said_end() || link()->death_proved())
    queue_->note_changed(*this);
}

// While a receiver takes from it, that one looks when it is done.
void Feed::wait_if_there_is_more() {
  channel_.receive_mutex().assert_held();
  if (taking_) return;
  ChannelReceiver& receiver = channel_.receiver();
  if (receiver.has_arrived() || (!channel_.is_open() && receiver.empty())) queue_->push(*this);
}

void Feed::on_over() {
  channel_.receive_mutex().assert_held();
  if (state() == State::broken) {
    // Waiting samples are not delivered: a new channel continues after the last taken one.
    (void)channel_.receiver().clear();
    reached_ = left_;
  }
  queue_->note_closed(*this);
  queue_->note_changed(*this);
  queue_->push(*this);
}

// Taking

bool Feed::next_message(Message& message) {
  Descriptor credit;
  Channel::Head head = Channel::Head::nothing;
  {
    Receiving receiving(*context_, *link());
    channel_.receive_mutex().assert_held();
    ChannelReceiver& receiver = channel_.receiver();
    taking_ = true;
    head = channel_.look();
    if (head == Channel::Head::nothing && !link()->ended() && receiving.poll())
      head = channel_.look();
    if (head == Channel::Head::message) {
      Incoming& first = receiver.front();
      if (first.body.failure() == nullptr) __builtin_prefetch(header_place(first));
      message.lend = bodies_.may_lend(*link(), first.body);
      before_ = left_;
      credit = receiver.take_front();
      message.incoming = receiver.pop_front();
      const Descriptor& descriptor = message.incoming.descriptor;
      untold_slot_ = (untold_slot_ || !descriptor.is_inline()) && credit.pipe == 0;
      if (descriptor.kind == MessageKind::data) {
        message.schema = receiver.schema(descriptor.schema);
        message.placement = receiver.placement(descriptor.schema);
      }
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
    // The publisher bounds its messages in slots by more than the window.
    if (untold_slot_ && receiver.empty()) {
      credit = receiver.tell();
      untold_slot_ = false;
    }
  }
  if (credit.pipe != 0) link()->post(credit);
  return head == Channel::Head::message;
}

std::optional<Feed::Taken> Feed::take() {
  for (Message message; next_message(message); message = {}) {
    Taken taken = read(std::move(message));
    // A lack of memory here is no fault of the publisher: it is asked for the sample again.
    if (taken.unreadable && taken.unreadable->code == ErrorCode::resource_exhausted) {
      ask_again(std::move(*taken.unreadable));
      return std::nullopt;
    }
    const Lock receiving(channel_.receive_mutex());
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
    taken.more = channel_.receiver().has_arrived();
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
  if (message.incoming.device != nullptr) return read_direct(message, taken);
  TENDON_TRY(tensors, bodies_.tensors_of(*link(), message.incoming, std::move(message.schema),
                                         message.lend));
  taken.tensors = std::move(tensors);
  taken.placement = std::move(message.placement);
  return {};
}

// Its tensors stay in place: the code that delivers it lends or copies them.
Result<void> Feed::read_direct(Message& message, Taken& taken) {
  TENDON_TRY(direct, bodies_.direct_of(*link(), message.incoming, std::move(message.schema),
                                       message.placement, message.lend));
  TENDON_TRY(tensors, direct_batch(direct, direct.body));
  taken.tensors = std::move(tensors);
  taken.placement = std::move(message.placement);
  taken.direct = std::make_shared<DirectSample>(DirectSample{std::move(direct), views_});
  return {};
}

// Its end

// The sample that left the inbox last is not delivered: a new channel brings it again.
void Feed::ask_again(Error why) {
  const Lock receiving(channel_.receive_mutex());
  taking_ = false;
  left_ = before_;
  reached_ = left_;
  channel_.give_up(std::move(why));
}

bool Feed::is_over() const {
  const Lock receiving(channel_.receive_mutex());
  return !channel_.is_open() && channel_.receiver().empty() && !taking_;
}

bool Feed::is_ending() const {
  const Lock receiving(channel_.receive_mutex());
  return !channel_.is_open() || channel_.said_end().has_value() || link()->death_proved();
}

Error Feed::why() const {
  const Lock receiving(channel_.receive_mutex());
  return channel_.is_open() ? Error{ErrorCode::internal, kWhere, "the channel is open"}
                            : channel_.why();
}

void Feed::note_reached(const SampleHeader& header) {
  if (header.sequence > reached_.sequence) reached_ = header;
}

// Samples arrive in order: the last waiting one tells the publisher's position.
void Feed::look_at_what_waits() {
  if (const Incoming* last = channel_.receiver().last_arrived())
    if (const auto header = header_of(*last)) note_reached(*header);
}

SampleHeader Feed::reached() {
  const Lock receiving(channel_.receive_mutex());
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
  const Lock receiving(channel_.receive_mutex());
  look_at_what_waits();
  if (const auto& said = channel_.said_end())
    return Ending{EndReason::closed, said->sequence, true};
  if (!link()->death_proved()) return std::nullopt;
  return Ending{EndReason::died, last_known(), head().has_value()};
}

Feed::Ending Feed::given_up(EndReason reason) {
  const Lock receiving(channel_.receive_mutex());
  look_at_what_waits();
  return {reason, last_known(), false};
}

GapFinder::Found Feed::take_last_gap(const Ending& ending) {
  const Lock receiving(channel_.receive_mutex());
  if (last_gap_ != GapFinder::Found{}) return std::exchange(last_gap_, {});
  return gaps_.on_loss(ending.last_published);  // nothing, if its end was read
}

void Feed::close() {
  channel_.close();
  queue_->note_closed(*this);
}

}  // namespace tendon::v0::detail
