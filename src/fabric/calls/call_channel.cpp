// SPDX-License-Identifier: Apache-2.0
#include "fabric/calls/call_channel.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "node.call";
/// Bodies of one channel that the program may keep without a copy.
constexpr std::uint32_t kMaxHeld = 16;

// Requests have the window of every pipe, answers that of the `open`.
Window bounded(const Link& link, Window window) {
  return link.traits().slots_bound_window ? window.without_bytes() : window;
}

std::uint64_t slot_bytes_of(const SharedMessage& message) {
  return message.slot == nullptr ? 0 : message.descriptor.payload_bytes;
}

}  // namespace

std::shared_ptr<CallChannel> CallChannel::create(std::shared_ptr<Entities> entities,
                                                 const std::shared_ptr<Link>& link,
                                                 std::uint32_t pipe, Role role, Window answers,
                                                 std::weak_ptr<Side> side) {
  auto channel = std::make_shared<CallChannel>(std::move(entities), link, pipe, role, answers,
                                               std::move(side));
  channel->sender_ =
      std::make_shared<Fanout>(channel->entities_->context(), [weak = std::weak_ptr(channel)] {
        if (const auto self = weak.lock()) self->flush();
      });
  return channel;
}

CallChannel::CallChannel(std::shared_ptr<Entities> entities, const std::shared_ptr<Link>& link,
                         std::uint32_t pipe, Role role, Window answers, std::weak_ptr<Side> side)
    : entities_(std::move(entities)),
      role_(role),
      side_(std::move(side)),
      out_(std::make_shared<SampleChannel>(
          *entities_->context(), link, pipe,
          bounded(*link, role == Role::caller ? Window{} : answers))),
      channel_(link,
               {.pipe = pipe,
                .window = bounded(*link, role == Role::caller ? answers : Window{}),
                .sending = &out_->window(),
                .cancels = Channel::Cancels::requests,
                .where = kWhere,
                .noun = "its calls"},
               *this),
      bodies_(kWhere, kMaxHeld) {
  entities_->count_subscription(*link, 1);
}

CallChannel::~CallChannel() { entities_->count_subscription(link(), -1); }

// Sending

bool CallChannel::send(std::shared_ptr<const KeptBody> message, const CallWord& word) {
  return put({std::move(message), word});
}

bool CallChannel::send(const CallWord& word, std::string_view text) {
  auto message = std::make_shared<KeptBody>();
  SharedMessage what;
  what.descriptor.kind = MessageKind::bytes;
  what.descriptor.payload_bytes = text.size();
  const auto no_slot = [](std::uint64_t) -> Result<std::shared_ptr<const PublishedSlot>> {
    return Error{ErrorCode::internal, kWhere, "the text of an error in a slot"};
  };
  if (!message->make_room(std::move(what), sizeof word, no_slot)) return false;
  if (!text.empty()) std::memcpy(message->memory().data(), text.data(), text.size());
  std::memcpy(message->header_room().data(), &word, sizeof word);
  return put({std::move(message), word});
}

bool CallChannel::put(Outgoing outgoing) {
  {
    const Lock lock(mutex_);
    if (is_over()) return false;
    outgoing_bytes_ += slot_bytes_of(outgoing.message->message);
    outgoing_.push_back(std::move(outgoing));
  }
  flush();
  return true;
}

// A peer that takes nothing leaves the other channels their part of the publish pool. Each may have
// one message in a slot, however large.
bool CallChannel::may_show(const Outgoing& outgoing) const {
  if (role_ == Role::caller && open_.size() >= kMaxOpenCalls) return false;
  const std::uint64_t size = slot_bytes_of(outgoing.message->message);
  const std::uint64_t untaken = out_->window().untaken_bytes();
  return size == 0 || untaken == 0 || untaken + size <= entities_->share_bytes() / 2;
}

bool CallChannel::has_room(std::uint64_t size_bytes) const {
  const Lock lock(mutex_);
  return outgoing_bytes_ == 0 || outgoing_bytes_ + size_bytes <= entities_->share_bytes() / 2;
}

// One thread at a time enters; whichever is next sends the messages that others put meanwhile.
void CallChannel::flush() {
  std::vector<Unsent> unsent;
  {
    Fanout::Round round(*sender_);
    const Lock lock(mutex_);
    while (!is_over() && !outgoing_.empty() && may_show(outgoing_.front())) {
      const Outgoing& next = outgoing_.front();
      const auto shown =
          round.show(out_, next.message->message, 0, entities_->share_bytes_of(link()));
      if (shown && *shown == Shown::closed) break;
      if (!shown && link().ended()) break;  // the sink is told
      if (!shown)
        unsent.push_back({next.word, shown.error()});
      else if (role_ == Role::caller)
        open_.insert(next.word.id);
      else
        open_.erase(next.word.id);
      outgoing_bytes_ -= slot_bytes_of(next.message->message);
      outgoing_.pop_front();
    }
  }
  if (unsent.empty()) return;
  const auto side = side_.lock();
  if (side == nullptr) return;
  for (const Unsent& gone : unsent) side->on_unsent(*this, gone.word, gone.why);
}

bool CallChannel::is_idle() {
  Fanout::Round round(*sender_);
  const Lock lock(mutex_);
  return is_over() || (outgoing_.empty() && round.is_idle(*out_));
}

void CallChannel::cancel(std::uint64_t id) {
  {
    const Lock lock(mutex_);
    if (is_over()) return;
    const auto waits = std::ranges::find_if(
        outgoing_, [&](const Outgoing& outgoing) { return outgoing.word.id == id; });
    if (waits != outgoing_.end()) {
      outgoing_bytes_ -= slot_bytes_of(waits->message->message);
      outgoing_.erase(waits);
      return;
    }
    if (!open_.contains(id)) return;
  }
  Descriptor cancel;
  cancel.kind = MessageKind::cancel;
  cancel.pipe = channel_.pipe();
  cancel.sequence = id;
  if (!link().ended()) link().post(cancel);
}

// Events of the channel

void CallChannel::on_arrived() {
  channel_.receive_mutex().assert_held();
  hand_over();
  flush();  // an answer makes room for a request
}

void CallChannel::hand_over() {
  for (;;) {
    const Channel::Head head = channel_.look();
    if (head == Channel::Head::nothing) return;
    Incoming message = channel_.receiver().pop_front();
    const auto side = side_.lock();
    if (head == Channel::Head::withdrawal) {
      if (side != nullptr && role_ == Role::responder)
        side->on_cancelled(*this, message.descriptor.sequence);
      continue;
    }
    auto received = read(std::move(message));
    if (!received) return channel_.break_off(std::move(received).error());
    if (side != nullptr) side->on_received(*this, *std::move(received));
  }
}

// Reads everything but the tensors, which are read where they are needed.
Result<CallChannel::Received> CallChannel::read(Incoming&& incoming) {
  const Descriptor& descriptor = incoming.descriptor;
  if (const Error* failure = incoming.body.failure()) return *failure;
  const std::uint64_t header_at = descriptor.payload_bytes + descriptor.values_bytes;
  const auto word = read_call_word({incoming.body.data + header_at, descriptor.header_bytes});
  if (!word) return channel_.violation(word.error().detail);
  const bool has_tensors = descriptor.kind == MessageKind::data;
  const bool is_legal = role_ == Role::responder ? word->kind == CallWordKind::request
                                                 : word->kind > CallWordKind::request &&
                                                       word->kind <= CallWordKind::cancelled;
  if (!is_legal || has_tensors != (word->kind <= CallWordKind::answer))
    return channel_.violation("sent what is neither a request nor an answer");
  if (!has_tensors && descriptor.body_bytes() > kMaxReasonBytes + sizeof(CallWord))
    return channel_.violation("sent an error with a text above its limit");
  TENDON_CHECK(open_or_close(*word));
  Received received{*word, std::move(incoming), nullptr};
  if (has_tensors)
    received.schema = channel_.receiver().schema(received.incoming.descriptor.schema);
  return received;
}

Result<void> CallChannel::open_or_close(const CallWord& word) {
  const Lock lock(mutex_);
  if (role_ == Role::caller) {
    if (open_.erase(word.id) != 0) return {};
    return channel_.violation("answered request " + std::to_string(word.id) +
                              ", which is not open");
  }
  if (open_.size() >= kMaxOpenCalls) {
    return channel_.violation("has more than " + std::to_string(kMaxOpenCalls) +
                              " requests open on one channel");
  }
  if (open_.insert(word.id).second) return {};
  return channel_.violation("asks with number " + std::to_string(word.id) + ", which is open");
}

// Taking

// The sender bounds its messages in slots by more than the window: it must hear of each.
void CallChannel::tell_taken(Incoming& incoming) {
  Descriptor credit = channel_.receiver().take(incoming);
  if (credit.pipe == 0 && !incoming.descriptor.is_inline()) credit = channel_.receiver().tell();
  channel_.post(credit);
}

Result<TensorDict> CallChannel::take(Received received) {
  Lend lend = Lend::no;
  {
    const Lock receiving(receive_mutex());
    link().receive_mutex().assert_held();
    lend = bodies_.may_lend(link(), received.incoming.body);
    tell_taken(received.incoming);
  }
  return bodies_.tensors_of(link(), received.incoming, std::move(received.schema), lend);
}

std::string CallChannel::take_text(Received received) {
  const Descriptor& descriptor = received.incoming.descriptor;
  // Copied first: the peer could change its slot during the read.
  const std::string text(as_text({received.incoming.body.data, descriptor.payload_bytes}));
  drop(std::move(received));
  return cleaned(text, kMaxReasonBytes);
}

void CallChannel::drop(Received&& received) {
  const Lock receiving(receive_mutex());
  drop_here(std::move(received));
}

void CallChannel::drop_here(Received&& received) {
  tell_taken(received.incoming);
  received.incoming = Incoming();
}

// Its end

void CallChannel::drop_unsent() {
  {
    const Lock lock(mutex_);
    outgoing_.clear();
    outgoing_bytes_ = 0;
  }
  sender_->remove(out_);
}

void CallChannel::on_over() {
  channel_.receive_mutex().assert_held();
  (void)channel_.receiver().clear();
  drop_unsent();
  const auto side = side_.lock();
  if (side == nullptr) return;
  Error why = channel_.why();
  // For a call that the peer has not answered, an orderly end is an error.
  if (why.code == ErrorCode::end_of_stream) why.code = ErrorCode::unreachable;
  side->on_over(*this, why);
}

void CallChannel::close() {
  channel_.stop();
  drop_unsent();
  channel_.close(Channel::Says::while_open);
}

}  // namespace tendon::v0::detail
