// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery_channel.hpp"

#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>

#include "core/peer_error.hpp"
#include "fabric/announcement.hpp"

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
      window_(Window{}, link->cap_bytes()) {}

// Sending

void DiscoveryChannel::put(DiscoveryWord word, std::string key) {
  const Lock lock(mutex_);
  // A peer that takes nothing is not told for ever: what it keeps is wrong until it asks anew.
  if (over_ || words_.size() >= 2 * kMaxAnnouncements) return;
  words_.emplace_back(word, std::move(key));
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
      const Descriptor credit = window_.take(pipe_, descriptor.payload_bytes);
      if (credit.pipe != 0) link().post(credit);
      auto taken = take(incoming);
      if (taken) return;
      const std::string_view text = taken.error().detail;
      link().post(error_descriptor(pipe_, taken.error().code, text), as_bytes(text));
      return end();
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

Result<void> DiscoveryChannel::take(const Incoming& incoming) {
  const Descriptor& descriptor = incoming.descriptor;
  const auto refuse = [](ErrorCode code, std::string detail) {
    return Error{code, "node.discovery", std::move(detail)};
  };
  if (incoming.transfer != nullptr || descriptor.body_bytes() > kMaxKeyBytes) {
    return refuse(ErrorCode::limit_exceeded,
                  "an announcement has at most " + std::to_string(kMaxKeyBytes) + " bytes");
  }
  if (const Error* failure = incoming.body.failure()) return *failure;
  // A copy first: the peer could change its slot while it is being read.
  const std::string key(as_text({incoming.body.data, descriptor.payload_bytes}));
  const auto word = static_cast<DiscoveryWord>(descriptor.tag);
  if (descriptor.tag > static_cast<std::uint32_t>(DiscoveryWord::said_all))
    return refuse(ErrorCode::protocol_violation, "an announcement neither comes nor goes");
  if (word == DiscoveryWord::said_all) {
    {
      const Lock lock(mutex_);
      picture_ = Picture::complete;
    }
    observer_.on_change();
    return {};
  }
  // What this version does not know is not kept; what speaks for somebody else is a lie.
  const auto announcement = parse_announcement(key);
  if (!announcement) return {};
  const ContextId context =
      std::visit([](const auto& said) { return said.context; }, *announcement);
  if (context != link().peer().context)
    return refuse(ErrorCode::protocol_violation, "a context announces only what is its own");
  {
    const Lock lock(mutex_);
    if (over_) return {};
    if (word == DiscoveryWord::went) {
      keys_.erase(key);
    } else {
      if (keys_.size() >= kMaxAnnouncements && !keys_.contains(key)) {
        return refuse(ErrorCode::limit_exceeded, "a context announces at most " +
                                                     std::to_string(kMaxAnnouncements) +
                                                     " nodes and entities");
      }
      keys_.insert(key);
    }
  }
  observer_.on_change();
  return {};
}

std::set<std::string> DiscoveryChannel::keys() const {
  const Lock lock(mutex_);
  return keys_;
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
    keys_.clear();
    words_.clear();
  }
  sender_->remove(channel_);
  observer_.on_over();
}

void DiscoveryChannel::close() {
  {
    const Lock lock(mutex_);
    over_ = true;
    keys_.clear();
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
