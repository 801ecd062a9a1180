// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/static_discovery.hpp"

#include <algorithm>
#include <tendon/fabric/limits.hpp>
#include <utility>

#include "fabric/keys/announcement.hpp"
#include "fabric/keys/turn.hpp"
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
    if (!addresses_.add(address)) {
      return Error{ErrorCode::limit_exceeded, "node.join",
                   "the nodes of a context name at most " + std::to_string(kMaxStaticPeers) +
                       " peers (kMaxStaticPeers)"};
    }
  }
  dialler_->want({.key = std::string(kDialKey) + address,
                  .peer = address,
                  .attempt =
                      [weak = weak_from_this(), address](const Dialler::Dial& dial) {
                        const auto self = weak.lock();
                        if (self == nullptr) return Dialler::Outcome::done;
                        const auto outcome = self->dial(address, dial.deadline);
                        self->note_dialled(address);
                        return outcome;
                      },
                  .whence = Dialler::Whence::user});
  return {};
}

bool StaticDiscovery::has_dialled(const std::string& address) const {
  const Lock lock(mutex_);
  return addresses_.has_dialled(address);
}

void StaticDiscovery::note_dialled(const std::string& address) {
  {
    const Lock lock(mutex_);
    addresses_.note_dialled(address);
  }
  context_->wake_others();
}

void StaticDiscovery::note_outcome(const std::string& address, std::string error) {
  const Lock lock(mutex_);
  addresses_.note_outcome(address, std::move(error));
}

std::vector<DialAttempt> StaticDiscovery::tried() const {
  const Lock lock(mutex_);
  return addresses_.tried();
}

void StaticDiscovery::close() {
  {
    const Lock lock(mutex_);
    closed_ = true;
  }
  context_->purposes().remove(Purpose::discovery, this);
  dialler_->drop_all(kDialKey);
  std::vector<Heard> heard;
  {
    const Lock lock(mutex_);
    heard.swap(channels_);
    leaving_.insert(leaving_.end(), heard.begin(), heard.end());
  }
  for (const Heard& each : heard) each.channel->close();
}

// Channels

Dialler::Outcome StaticDiscovery::dial(const std::string& address, Deadline deadline) {
  using Outcome = Dialler::Outcome;
  const auto connected = connect(*context_, address, profile_, deadline);
  note_outcome(address, connected ? std::string() : connected.error().message());
  if (!connected) {
    context_->log(LogLevel::debug, "node.discovery",
                  "no node at " + address + " yet: " + connected.error().message());
    return context_->unusable() ? Outcome::done : Outcome::unreached;
  }
  Link& link = *connected->link;
  // Its own address is in the list.
  if (link.peer().context == context_->id()) return Outcome::done;
  Channel channel;
  const auto opened =
      context_->open_pipe(link, Opening{.purpose = Purpose::discovery}, [&](std::uint32_t pipe) {
        channel = make_channel(connected->link, pipe, address);
        return channel->sink();
      });
  if (!opened) return Outcome::again;
  if (add(channel)) return Outcome::done;
  channel->close();
  return Outcome::again;
}

Result<std::shared_ptr<MessageSink>> StaticDiscovery::on_open(std::shared_ptr<Link> link,
                                                              const Descriptor& open, Bytes) {
  const Channel channel = make_channel(link, open.pipe, {});
  TENDON_CHECK(add(channel));
  return channel->sink();
}

StaticDiscovery::Channel StaticDiscovery::make_channel(const std::shared_ptr<Link>& link,
                                                       std::uint32_t pipe,
                                                       const std::string& address) {
  const auto channel = std::make_shared<std::weak_ptr<DiscoveryChannel>>();
  const auto words = [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->turn_soon();
  };
  const auto over = [weak = weak_from_this(), context = context_, channel, address] {
    context->schedule([weak, channel, address] {
      if (const auto self = weak.lock()) self->over(*channel, address);
    });
  };
  Channel made = DiscoveryChannel::create(context_, link, pipe, {words, over});
  *channel = made;
  return made;
}

Result<void> StaticDiscovery::add(const Channel& channel) {
  {
    const Lock lock(mutex_);
    if (closed_) {
      return Error{ErrorCode::unreachable, "node.discovery", "the nodes of this context have left"};
    }
    Heard heard{.channel = channel, .keys = nullptr};
    const auto is_of_link = [&](const Heard& known) {
      return &known.channel->link() == &channel->link();
    };
    const auto beside = std::ranges::find_if(channels_, is_of_link);
    if (beside != channels_.end()) {
      heard.keys = beside->keys;
    } else if (const auto before = std::ranges::find_if(leaving_, is_of_link);
               before != leaving_.end()) {
      heard.keys = before->keys;
    } else {
      heard.keys = std::make_shared<AnnouncedKeys>(AnnouncingLimits::of(channel->link()));
    }
    const auto alive = std::ranges::count_if(channels_, [&](const Heard& known) {
      return is_of_link(known) && !known.channel->is_over();
    });
    const bool has_room = std::cmp_less(alive, AnnouncedKeys::kMostPipes);
    heard.pipe = has_room ? heard.keys->take_pipe() : AnnouncedKeys::kMostWithLeaving;
    if (heard.pipe == AnnouncedKeys::kMostWithLeaving) {
      return Error{ErrorCode::limit_exceeded, "node.discovery",
                   "a link has at most " + std::to_string(AnnouncedKeys::kMostPipes) +
                       " channels of discovery"};
    }
    tell_all(heard);
    channel->put_said_all();
    channels_.push_back(std::move(heard));
  }
  channel->flush();
  if (channel->is_over()) leave(channel);  // over() may have looked for it before it was there
  turn_soon();  // the peer may have said something before it was in the list
  return {};
}

void StaticDiscovery::over(const std::weak_ptr<DiscoveryChannel>& weak,
                           const std::string& address) {
  if (const Channel channel = weak.lock()) {
    leave(channel);
    channel->close();
  }
  turn_soon();
  if (!address.empty()) dialler_->again(std::string(kDialKey) + address);
}

void StaticDiscovery::leave(const Channel& channel) {
  const Lock lock(mutex_);
  const auto found = std::ranges::find(channels_, channel, &Heard::channel);
  if (found == channels_.end()) return;
  leaving_.push_back(std::move(*found));
  channels_.erase(found);
}

// Words of peers

void StaticDiscovery::turn_soon() {
  if (turn_is_due_.exchange(true)) return;
  context_->schedule([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->take_turn();
  });
}

void StaticDiscovery::take_turn() {
  turn_is_due_ = false;  // before it looks: later words have another turn
  const auto turn = DiscoveryTurn::begin();
  std::vector<Heard> heard;
  bool has_more = true;
  {
    const Lock turning(turning_);
    {
      const Lock lock(mutex_);
      heard = channels_;
    }
    while (has_more && !turn.is_over()) {
      has_more = forget_some();
      has_more = take_some(heard) || has_more;
    }
  }
  watchers_->changed();
  if (has_more) turn_soon();
}

// Done first: forgetting makes room.
bool StaticDiscovery::forget_some() {
  std::vector<std::string> gone;
  bool has_more = false;
  Heard done;  // dropped after the lock: it may have the last share of a link
  {
    const Lock lock(mutex_);
    if (leaving_.empty()) return false;
    Heard& first = leaving_.front();
    has_more = first.keys->remove_some(first.pipe, DiscoveryTurn::kAtOnce, first.forgotten, gone);
    if (!has_more) {
      first.keys->give_pipe_back(first.pipe);
      done = std::move(first);
      leaving_.erase(leaving_.begin());
      has_more = !leaving_.empty();
    }
  }
  for (const std::string& key : gone) keys_->remove(key);
  return has_more;
}

bool StaticDiscovery::take_some(const std::vector<Heard>& heard) {
  bool has_more = false;
  for (const Heard& each : heard) {
    if (each.channel->is_over()) continue;
    const auto words = each.channel->take(DiscoveryTurn::kAtOnce);
    has_more = has_more || words.size() == DiscoveryTurn::kAtOnce;
    for (const auto& word : words) {
      const auto taken = take(each, word);
      if (taken) continue;
      each.channel->refuse(taken.error());
      keys_->tell({each.channel->link().peer_name(), taken.error()});
      break;
    }
  }
  return has_more;
}

Result<void> StaticDiscovery::take(const Heard& heard, const DiscoveryChannel::Word& word) {
  const auto& [what, key] = word;
  if (what == DiscoveryWord::said_all) {
    heard.channel->note_complete();
    return {};
  }
  if (what == DiscoveryWord::went) {
    const Lock lock(mutex_);
    if (heard.keys->remove(heard.pipe, key)) keys_->remove(key);
    return {};
  }
  // Announcements unknown to this version are not kept; those on behalf of others are lies.
  const auto announcement = parse_announcement(key);
  if (!announcement) return {};
  const ContextId context =
      std::visit([](const auto& said) { return said.context; }, *announcement);
  if (context != heard.channel->link().peer().context) {
    return Error{ErrorCode::protocol_violation, "node.discovery",
                 "a context announces only what is its own"};
  }
  const Lock lock(mutex_);
  TENDON_TRY(is_new, heard.keys->add(heard.pipe, key));
  if (is_new) keys_->add(key);
  return {};
}

// Announcements

Result<void> StaticDiscovery::announce(const KeyExpression& key) {
  const std::string& text = key.text();
  std::vector<Heard> heard;
  {
    const Lock lock(mutex_);
    if (const auto known = own_.find(text); known != own_.end()) {
      ++known->second;
      return {};
    }
    TENDON_CHECK(AnnouncingLimits().admit(own_.size(), own_bytes_, text.size()));
    own_[text] = 1;
    own_bytes_ += text.size();
    // Under the lock, so that all channels have the words about one key in one order.
    for (Heard& each : channels_) (void)tell(each, text);
    heard = channels_;
  }
  keys_->add(text);
  flush(heard);
  return {};
}

void StaticDiscovery::withdraw(const KeyExpression& key) {
  const std::string& text = key.text();
  std::vector<Heard> heard;
  {
    const Lock lock(mutex_);
    const auto found = own_.find(text);
    if (found == own_.end() || --found->second > 0) return;
    own_.erase(found);
    own_bytes_ -= text.size();
    for (Heard& each : channels_)
      if (each.channel->put_went(text)) tell_all(each);
    heard = channels_;
  }
  keys_->remove(text);
  flush(heard);
}

void StaticDiscovery::tell_all(Heard& heard) {
  for (const auto& [key, count] : own_)
    if (!tell(heard, key)) return;
}

bool StaticDiscovery::tell(Heard& heard, const std::string& key) {
  auto put = heard.channel->put_came(key);
  if (put) return true;
  if (!std::exchange(heard.told_of_limit, true)) {
    Error why = std::move(put).error();
    why.detail = "it is not told of all that this context announces: " + why.detail;
    keys_->tell({heard.channel->link().peer_name(), std::move(why)});
  }
  return false;
}

void StaticDiscovery::flush(const std::vector<Heard>& heard) {
  for (const Heard& each : heard) each.channel->flush();
  watchers_->changed();
}

Picture StaticDiscovery::picture() const {
  std::vector<Heard> heard;
  {
    const Lock lock(mutex_);
    if (!addresses_.has_dialled_all()) return Picture::incomplete;
    heard = channels_;
  }
  for (const Heard& each : heard)
    if (!each.channel->is_over() && each.channel->picture() == Picture::incomplete)
      return Picture::incomplete;
  return Picture::complete;
}

}  // namespace tendon::v0::detail
