// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/discovery_channel.hpp"

#include <algorithm>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

namespace tendon::v0::detail {

namespace {

constexpr std::string_view kWhere = "node.discovery";

}  // namespace

static_assert(kMaxKeyBytes <= kMaxInlineBytes, "a word is a message without a slot");

std::shared_ptr<DiscoveryChannel> DiscoveryChannel::create(
    const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Link>& link,
    std::uint32_t pipe, Observer observer) {
  auto channel = std::make_shared<DiscoveryChannel>(context, link, pipe, std::move(observer));
  channel->sender_ = std::make_shared<Fanout>(context, [weak = std::weak_ptr(channel)] {
    if (const auto self = weak.lock()) self->flush();
  });
  return channel;
}

DiscoveryChannel::DiscoveryChannel(const std::shared_ptr<ContextCore>& context,
                                   const std::shared_ptr<Link>& link, std::uint32_t pipe,
                                   Observer observer)
    : observer_(std::move(observer)),
      limits_(AnnouncingLimits::of(*link)),
      out_(std::make_shared<SampleChannel>(*context, link, pipe, Window{})),
      channel_(link,
               {.pipe = pipe,
                .most_bytes = kMaxKeyBytes,
                .sending = &out_->window(),
                .where = kWhere,
                .noun = "its announcements"},
               *this) {}

// Sending

void DiscoveryChannel::put(Word word) {
  const Lock lock(mutex_);
  // A peer that takes nothing is not told for ever: its picture is wrong until it asks anew.
  if (is_over() || words_.size() >= 2 * kMaxAnnouncements) return;
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

// One thread at a time enters; another one that arrives meanwhile leaves its word to it.
void DiscoveryChannel::flush() {
  Fanout::Round round(*sender_);
  for (;;) {
    Word word;
    {
      const Lock lock(mutex_);
      if (is_over() || words_.empty()) return;
      word = words_.front();
    }
    SharedMessage message;
    message.descriptor.kind = MessageKind::bytes;
    message.descriptor.payload_bytes = word.second.size();
    message.body = as_bytes(word.second);
    const auto tag = static_cast<std::uint32_t>(word.first);
    const auto shown = round.show(out_, message, tag);
    if (!shown || *shown == Shown::closed) return;  // its link has ended; or: on_room
    const Lock lock(mutex_);
    if (!words_.empty()) words_.pop_front();
  }
}

// Words of the peer

Result<DiscoveryChannel::Word> DiscoveryChannel::read(const Incoming& incoming) const {
  const Descriptor& descriptor = incoming.descriptor;
  if (const Error* failure = incoming.body.failure()) return *failure;
  if (descriptor.kind != MessageKind::bytes ||
      descriptor.tag > static_cast<std::uint32_t>(DiscoveryWord::said_all))
    return channel_.violation("sent an announcement that neither comes nor goes");
  // A copy: the peer could change its slot during the read.
  return Word{static_cast<DiscoveryWord>(descriptor.tag),
              std::string(as_text({incoming.body.data, descriptor.payload_bytes}))};
}

std::vector<DiscoveryChannel::Word> DiscoveryChannel::take(std::size_t most) {
  std::vector<Word> taken;
  const Lock receiving(channel_.receive_mutex());
  while (taken.size() < most && channel_.look() == Channel::Head::message) {
    channel_.post(channel_.receiver().take_front());
    auto word = read(channel_.receiver().pop_front());
    if (!word) {
      channel_.break_off(std::move(word).error());
      break;
    }
    taken.push_back(*std::move(word));
  }
  return taken;
}

void DiscoveryChannel::refuse(const Error& why) {
  const Lock receiving(channel_.receive_mutex());
  channel_.break_off(why);
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

void DiscoveryChannel::drop_words() {
  {
    const Lock lock(mutex_);
    words_.clear();
  }
  sender_->remove(out_);
}

void DiscoveryChannel::on_arrived() {
  channel_.receive_mutex().assert_held();
  if (!channel_.said_end()) return observer_.on_words();
  // It is over at once, and makes room for another one: its words are forgotten with it.
  while (channel_.look() == Channel::Head::message) (void)channel_.receiver().pop_front();
}

void DiscoveryChannel::on_over() {
  drop_words();
  observer_.on_over();
}

void DiscoveryChannel::close() {
  channel_.stop();
  drop_words();
  channel_.close();
}

}  // namespace tendon::v0::detail
