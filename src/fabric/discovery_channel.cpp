// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery_channel.hpp"

#include <algorithm>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/peer_error.hpp"

namespace tendon::v0::detail {

static_assert(kMaxKeyBytes <= kMaxInlineBytes, "a word is a message without a slot");

std::shared_ptr<DiscoveryChannel> DiscoveryChannel::create(
    const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Link>& link,
    std::uint32_t pipe, Observer observer) {
  auto channel = std::make_shared<DiscoveryChannel>(context, link, pipe, std::move(observer));
  channel->sender_ = std::make_shared<SampleSender>(context, [weak = std::weak_ptr(channel)] {
    if (const auto self = weak.lock()) self->flush();
  });
  return channel;
}

DiscoveryChannel::DiscoveryChannel(const std::shared_ptr<ContextCore>& context,
                                   const std::shared_ptr<Link>& link, std::uint32_t pipe,
                                   Observer observer)
    : pipe_(pipe),
      observer_(std::move(observer)),
      channel_(std::make_shared<SampleChannel>(*context, link, pipe, Window{})),
      limits_(AnnouncingLimits::of(*link)),
      window_(Window{}, link->cap_bytes()) {}

// Sending

void DiscoveryChannel::put(Word word) {
  const Lock lock(mutex_);
  // A peer that takes nothing is not told for ever: what it keeps is wrong until it asks anew.
  if (over_ || words_.size() >= 2 * kMaxAnnouncements) return;
  words_.push_back(std::move(word));
}

// A peer of this protocol may be told of all that a Context may announce.
Result<void> DiscoveryChannel::put_came(const std::string& key) {
  if (limits_.keys < kMaxAnnouncements) {
    const Lock lock(mutex_);
    if (told_.keys.contains(key)) return {};
    if (auto room = limits_.admit(told_.keys.size(), told_.bytes, key.size()); !room) {
      told_.left_out = true;
      return room;
    }
    told_.keys.insert(key);
    told_.bytes += key.size();
  }
  put({DiscoveryWord::came, key});
  return {};
}

bool DiscoveryChannel::put_went(const std::string& key) {
  bool has_room = false;
  if (limits_.keys < kMaxAnnouncements) {
    const Lock lock(mutex_);
    if (told_.keys.erase(key) == 0) return false;
    told_.bytes -= key.size();
    has_room = std::exchange(told_.left_out, false);
  }
  put({DiscoveryWord::went, key});
  return has_room;
}

// One thread at a time gets through; another one that comes meanwhile leaves its word to it.
void DiscoveryChannel::flush() {
  SampleSender::Round round(*sender_);
  for (;;) {
    Word word;
    {
      const Lock lock(mutex_);
      if (over_ || words_.empty()) return;
      word = words_.front();
    }
    SharedMessage message;
    message.descriptor.kind = MessageKind::bytes;
    message.descriptor.payload_bytes = word.second.size();
    message.body = as_bytes(word.second);
    const auto tag = static_cast<std::uint32_t>(word.first);
    const auto shown = round.show(channel_, message, tag);
    if (!shown || *shown == Shown::closed) return;  // its link has ended; or: on_room
    const Lock lock(mutex_);
    if (!words_.empty()) words_.pop_front();
  }
}

// What the peer says

bool DiscoveryChannel::admits(const Descriptor& descriptor) {
  return descriptor.body_bytes() <= kMaxKeyBytes;
}

void DiscoveryChannel::on_message(Incoming&& incoming) {
  link().receive_mutex().assert_held();
  const Descriptor& descriptor = incoming.descriptor;
  switch (descriptor.kind) {
    case MessageKind::bytes: {
      if (const auto accepted = accept(incoming); !accepted) refuse(accepted.error());
      return;
    }
    case MessageKind::credit:
      // Also one that seems to count too much: the count may be a moment behind.
      (void)channel_->window().on_credit(descriptor);
      return flush();
    case MessageKind::end:
    case MessageKind::cancel:
    case MessageKind::error:
      return end();
    default:
      return;  // nothing else is of use here
  }
}

Result<void> DiscoveryChannel::accept(const Incoming& incoming) {
  const Descriptor& descriptor = incoming.descriptor;
  const auto refused = [](ErrorCode code, std::string detail) {
    return Error{code, "node.discovery", std::move(detail)};
  };
  if (is_over()) return {};
  if (incoming.transfer != nullptr || descriptor.body_bytes() > kMaxKeyBytes) {
    return refused(ErrorCode::limit_exceeded,
                   "an announcement has at most " + std::to_string(kMaxKeyBytes) + " bytes");
  }
  if (const Error* failure = incoming.body.failure()) return *failure;
  // It may send a second window before it hears of the first one.
  if (came_.size() >= std::size_t{2} * window_.window().messages) {
    return refused(ErrorCode::protocol_violation,
                   "more announcements than the window of a pipe has");
  }
  if (descriptor.tag > static_cast<std::uint32_t>(DiscoveryWord::said_all))
    return refused(ErrorCode::protocol_violation, "an announcement neither comes nor goes");
  // A copy: the peer could change its slot while it is being read.
  came_.emplace_back(static_cast<DiscoveryWord>(descriptor.tag),
                     std::string(as_text({incoming.body.data, descriptor.payload_bytes})));
  observer_.on_words();
  return {};
}

std::vector<DiscoveryChannel::Word> DiscoveryChannel::take(std::size_t most) {
  std::vector<Word> taken;
  std::vector<Descriptor> credits;
  {
    const Lock receiving(link().receive_mutex());
    taken.reserve(std::min(most, came_.size()));
    while (taken.size() < most && !came_.empty()) {
      const Descriptor credit = window_.take(pipe_, came_.front().second.size());
      if (credit.pipe != 0) credits.push_back(credit);
      taken.push_back(std::move(came_.front()));
      came_.pop_front();
    }
  }
  if (!link().ended())
    for (const Descriptor& credit : credits) link().post(credit);
  return taken;
}

void DiscoveryChannel::refuse(const Error& why) {
  if (!link().ended()) link().post_error(pipe_, why.code, why.detail);
  end();
}

void DiscoveryChannel::note_complete() {
  const Lock lock(mutex_);
  picture_ = Picture::complete;
}

Picture DiscoveryChannel::picture() const {
  const Lock lock(mutex_);
  return picture_;
}

// Its end

bool DiscoveryChannel::is_over() const {
  const Lock lock(mutex_);
  return over_;
}

void DiscoveryChannel::on_link_failed(const Error&) { end(); }

void DiscoveryChannel::end() {
  {
    const Lock lock(mutex_);
    if (over_) return;
    over_ = true;
    words_.clear();
  }
  sender_->remove(channel_);
  observer_.on_over();
}

void DiscoveryChannel::close() {
  {
    const Lock lock(mutex_);
    over_ = true;
    words_.clear();
  }
  sender_->remove(channel_);
  Descriptor end;
  end.kind = MessageKind::end;
  end.pipe = pipe_;
  if (!link().ended()) link().post(end);
  const Lock receiving(link().receive_mutex());
  link().detach(pipe_);
}

}  // namespace tendon::v0::detail
