// SPDX-License-Identifier: Apache-2.0
#include "fabric/static_discovery.hpp"

#include <algorithm>
#include <tendon/fabric/limits.hpp>
#include <tendon/observe/log.hpp>

#include "runtime/connect.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kDialKey = "peer ";

}  // namespace

Result<std::shared_ptr<StaticDiscovery>> StaticDiscovery::create(
    std::shared_ptr<ContextCore> context, Profile profile, std::shared_ptr<Dialler> dialler) {
  auto discovery =
      std::make_shared<StaticDiscovery>(std::move(context), profile, std::move(dialler));
  TENDON_CHECK(discovery->context_->purposes().add(
      Purpose::discovery, Entrance{.handler = discovery, .profile = profile}));
  return discovery;
}

StaticDiscovery::~StaticDiscovery() {
  if (!context_->forked()) context_->purposes().remove(Purpose::discovery, this);
}

Result<void> StaticDiscovery::add_peer(const std::string& address) {
  {
    const Lock lock(mutex_);
    if (addresses_.size() >= kMaxStaticPeers && !addresses_.contains(address)) {
      return Error{ErrorCode::limit_exceeded, "node.join",
                   "the nodes of a context name at most " + std::to_string(kMaxStaticPeers) +
                       " peers (kMaxStaticPeers)"};
    }
    addresses_.try_emplace(address);
  }
  dialler_->want(std::string(kDialKey) + address, address,
                 [weak = weak_from_this(), address](Deadline deadline) {
                   const auto self = weak.lock();
                   if (self == nullptr) return true;
                   const bool done = self->dial(address, deadline);
                   self->note_dialled(address);
                   return done;
                 });
  return {};
}

bool StaticDiscovery::has_dialled(const std::string& address) const {
  const Lock lock(mutex_);
  const auto found = addresses_.find(address);
  return found != addresses_.end() && found->second.dialled == Dialled::once;
}

void StaticDiscovery::note_dialled(const std::string& address) {
  {
    const Lock lock(mutex_);
    addresses_[address].dialled = Dialled::once;
  }
  context_->wake_others();
}

void StaticDiscovery::note_outcome(const std::string& address, std::string error) {
  const Lock lock(mutex_);
  addresses_[address].error = std::move(error);
}

std::vector<DialAttempt> StaticDiscovery::tried() const {
  std::vector<DialAttempt> tried;
  const Lock lock(mutex_);
  for (const auto& [address, place] : addresses_)
    if (place.dialled == Dialled::once) tried.push_back({address, place.error});
  return tried;
}

void StaticDiscovery::close() {
  {
    const Lock lock(mutex_);
    closed_ = true;
  }
  context_->purposes().remove(Purpose::discovery, this);
  dialler_->drop_all(kDialKey);
  std::vector<Channel> channels;
  {
    const Lock lock(mutex_);
    channels.swap(channels_);
  }
  for (const Channel& channel : channels) channel->close();
}

// Channels

bool StaticDiscovery::dial(const std::string& address, Deadline deadline) {
  const auto connected = connect(*context_, address, profile_, deadline);
  note_outcome(address, connected ? std::string() : connected.error().message());
  if (!connected) {
    log(LogLevel::debug, "node.discovery",
        "no node at " + address + " yet: " + connected.error().message());
    return context_->unusable();
  }
  Link& link = *connected->link;
  if (link.peer().context == context_->id()) return true;  // its own address is in the list
  Channel channel;
  const auto opened = context_->open_pipe(
      link, Opening{.purpose = Purpose::discovery},
      [&](std::uint32_t pipe) { return channel = make_channel(connected->link, pipe, address); });
  if (!opened) return false;
  if (add(channel)) return true;
  channel->close();
  return false;
}

Result<std::shared_ptr<MessageSink>> StaticDiscovery::on_open(std::shared_ptr<Link> link,
                                                              const Descriptor& open, Bytes) {
  const Channel channel = make_channel(link, open.pipe, {});
  TENDON_CHECK(add(channel));
  return std::static_pointer_cast<MessageSink>(channel);
}

StaticDiscovery::Channel StaticDiscovery::make_channel(const std::shared_ptr<Link>& link,
                                                       std::uint32_t pipe,
                                                       const std::string& address) {
  const auto channel = std::make_shared<std::weak_ptr<DiscoveryChannel>>();
  const auto changed = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->watchers_->changed();
  };
  const auto over = [weak = weak_from_this(), context = context_, channel, address] {
    context->schedule([weak, channel, address] {
      if (const auto self = weak.lock()) self->over(*channel, address);
    });
  };
  Channel made = DiscoveryChannel::create(context_, link, pipe, {changed, over});
  *channel = made;
  return made;
}

Result<void> StaticDiscovery::add(const Channel& channel) {
  {
    const Lock lock(mutex_);
    if (closed_) {
      return Error{ErrorCode::unreachable, "node.discovery", "the nodes of this context have left"};
    }
    const auto of_link = std::ranges::count_if(channels_, [&](const Channel& known) {
      return &known->link() == &channel->link() && !known->is_over();
    });
    if (of_link >= kMostChannelsPerLink) {
      return Error{
          ErrorCode::limit_exceeded, "node.discovery",
          "a link has at most " + std::to_string(kMostChannelsPerLink) + " channels of discovery"};
    }
    channels_.push_back(channel);
    for (const auto& [key, count] : own_) channel->put(DiscoveryWord::came, key);
    channel->put(DiscoveryWord::said_all, {});
  }
  channel->flush();
  if (channel->is_over()) {  // over() may have looked for it before it was there
    const Lock lock(mutex_);
    std::erase(channels_, channel);
  }
  watchers_->changed();  // the peer may have announced something before it was in the list
  return {};
}

void StaticDiscovery::over(const std::weak_ptr<DiscoveryChannel>& weak,
                           const std::string& address) {
  if (const Channel channel = weak.lock()) {
    {
      const Lock lock(mutex_);
      std::erase(channels_, channel);
    }
    channel->close();
  }
  watchers_->changed();
  if (!address.empty()) dialler_->again(std::string(kDialKey) + address);
}

// Announcements

Result<void> StaticDiscovery::announce(const KeyExpression& key) {
  std::vector<Channel> channels;
  {
    const Lock lock(mutex_);
    if (own_.size() >= kMaxAnnouncements && !own_.contains(key.text())) {
      return Error{ErrorCode::limit_exceeded, "node.announce",
                   "a context has at most " + std::to_string(kMaxAnnouncements) +
                       " nodes, publishers and subscribers (kMaxAnnouncements)"};
    }
    if (++own_[key.text()] > 1) return {};
    channels = put_everywhere(DiscoveryWord::came, key.text());
  }
  flush(channels);
  return {};
}

void StaticDiscovery::withdraw(const KeyExpression& key) {
  std::vector<Channel> channels;
  {
    const Lock lock(mutex_);
    const auto found = own_.find(key.text());
    if (found == own_.end() || --found->second > 0) return;
    own_.erase(found);
    channels = put_everywhere(DiscoveryWord::went, key.text());
  }
  flush(channels);
}

// Under the lock, so that all channels have the words about one key in one order.
std::vector<StaticDiscovery::Channel> StaticDiscovery::put_everywhere(DiscoveryWord word,
                                                                      const std::string& key) {
  for (const Channel& channel : channels_) channel->put(word, key);
  return channels_;
}

void StaticDiscovery::flush(const std::vector<Channel>& channels) {
  for (const Channel& channel : channels) channel->flush();
  watchers_->changed();
}

std::set<std::string> StaticDiscovery::keys() const {
  std::set<std::string> keys;
  std::vector<Channel> channels;
  {
    const Lock lock(mutex_);
    channels = channels_;
    for (const auto& [key, count] : own_) keys.insert(key);
  }
  for (const Channel& channel : channels) keys.merge(channel->keys());
  return keys;
}

Picture StaticDiscovery::picture() const {
  std::vector<Channel> channels;
  {
    const Lock lock(mutex_);
    for (const auto& [address, place] : addresses_)
      if (place.dialled == Dialled::not_yet) return Picture::incomplete;
    channels = channels_;
  }
  for (const Channel& channel : channels)
    if (!channel->is_over() && channel->picture() == Picture::incomplete)
      return Picture::incomplete;
  return Picture::complete;
}

}  // namespace tendon::v0::detail
