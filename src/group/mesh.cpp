// SPDX-License-Identifier: Apache-2.0
#include "group/mesh.hpp"

#include <algorithm>
#include <tendon/observe/log.hpp>

#include "core/text.hpp"
#include "group/farewell.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "group.join";
// Small messages for groups that are being made elsewhere and not yet here.
constexpr std::size_t kMostEarly = 65536;

std::string rank_text(std::uint32_t place) { return "rank " + std::to_string(place); }

Error refusal(std::string detail) {
  return Error{ErrorCode::invalid_argument, kWhere, std::move(detail)};
}

// Nobody will take it, and its sender is not to wait for that.
void drop(const InboundMessage& inbound) {
  if (inbound.envelope.kind == EnvelopeKind::message) inbound.credit();
}

}  // namespace

Mesh::Mesh(std::shared_ptr<Engine> engine, const Rendezvous& rendezvous, GroupOptions options)
    : engine_(std::move(engine)),
      rendezvous_(rendezvous),
      options_(std::move(options)),
      self_(rendezvous.rank().value),
      size_(rendezvous.size()),
      channels_(size_),
      addresses_(size_) {}

// In a forked child a thread of the parent may have the lock.
Mesh::~Mesh() {
  if (!engine_->forked()) end();
}

void Mesh::end() {
  std::vector<std::shared_ptr<Channel>> channels;
  std::vector<std::shared_ptr<Channel>> strangers;
  {
    const Lock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    // What still has a share of this needs none of the links and mappings. Whether a member was
    // lost is still asked: came_too_late().
    channels = std::exchange(channels_, std::vector<std::shared_ptr<Channel>>(size_));
    for (auto& [place, lost] : lost_) lost.channel.reset();
    claims_.clear();
    early_hellos_.clear();
    shown_.clear();
    strangers.swap(strangers_);
  }
  if (acceptor_ != nullptr) acceptor_->close();
  if (engine_->unusable()) return;
  std::erase(channels, nullptr);
  Farewell::say(*engine_, std::move(channels));
  for (const auto& channel : strangers) channel->close();
}

Result<std::shared_ptr<Mesh>> Mesh::create(std::shared_ptr<Engine> engine,
                                           const Rendezvous& rendezvous,
                                           const GroupOptions& options) {
  TENDON_CHECK(engine->usable(kWhere));
  if (rendezvous.problem()) return *rendezvous.problem();
  const std::uint32_t size = rendezvous.size();
  if (size < 1 || size > kMaxPlaces) {
    return refusal("a group of " + std::to_string(size) + " members; 1 to " +
                   std::to_string(kMaxPlaces) + " are legal");
  }
  if (rendezvous.rank().value >= size) {
    return refusal("rank " + std::to_string(rendezvous.rank().value) + " of a group of " +
                   std::to_string(size) + ": ranks are 0 to " + std::to_string(size - 1));
  }
  // What is delivered holds a share meanwhile, which may be the last: closing channels would then
  // wait for a lock that this thread has.
  const auto end = [](Mesh* last) {
    if (!Channel::delivering_here()) {
      delete last;
      return;
    }
    const std::shared_ptr<Engine> its_engine = last->engine_;
    its_engine->schedule([mesh = std::shared_ptr<Mesh>(last)] {});
  };
  return std::shared_ptr<Mesh>(new Mesh(std::move(engine), rendezvous, options), end);
}

std::string Mesh::name_of(std::uint32_t place) const {
  if (place >= size_) return rank_text(place);
  const auto at = channel(place);
  if (at == nullptr && place != self_) return rank_text(place);
  // The same on all members, since errors go from one to the others.
  std::string peer = place == self_ ? engine_->identity().to_string() : at->link().peer_name();
  // "vision (host a, pid 12)" -> "rank 3 (vision, host a, pid 12)"
  if (const auto open = peer.find(" ("); open != std::string::npos && peer.back() == ')') {
    peer.pop_back();
    peer.replace(open, 2, ", ");
  }
  return rank_text(place) + " (" + peer + ")";
}

// Groups

void Mesh::add(std::uint64_t group, std::weak_ptr<MeshListener> listener) {
  std::vector<Early> early;
  std::map<std::uint32_t, Lost> lost;
  auto strong = listener.lock();
  {
    const Lock lock(mutex_);
    listeners_[group] = std::move(listener);
    if (const auto found = early_.find(group); found != early_.end()) {
      early = std::move(found->second);
      early_count_ -= early.size();
      early_.erase(found);
    }
    lost = lost_;
  }
  for (Early& word : early) strong->on_inbound(word.place, std::move(word.inbound));
  for (const auto& [place, what] : lost)
    strong->on_lost(place, *what.channel, what.error, what.how);
}

bool Mesh::remove(std::uint64_t group, const MemberMask& staying) {
  const Lock lock(mutex_);
  listeners_.erase(group);
  if (staying.any()) removed_[group] = staying;
  return listeners_.empty();
}

// Nothing more comes from there to the groups that this member has left.
void Mesh::forget_removed(std::uint32_t place) {
  for (auto& [group, staying] : removed_) staying.reset(place);
  std::erase_if(removed_, [](const auto& group) { return group.second.none(); });
}

void Mesh::keep_sending() {
  if (!sending_.exchange(true)) engine_->add_work(shared_from_this());
}

std::vector<std::shared_ptr<Channel>> Mesh::sending() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<Channel>> sending;
  for (const auto& channel : channels_)
    if (channel != nullptr && !channel->lost() && channel->queued_count() != 0)
      sending.push_back(channel);
  return sending;
}

bool Mesh::progress() {
  for (const auto& channel : sending()) channel->advance();
  if (!sending().empty()) return true;
  sending_ = false;
  // Something may have been queued since.
  return !sending().empty() && !sending_.exchange(true);
}

Unsent Mesh::unsent() const {
  Unsent unsent;
  for (const auto& channel : sending()) {
    unsent.peer = channel->link().peer_name();
    unsent.message_count += channel->queued_count();
  }
  return unsent;
}

// What channels hear

std::optional<std::uint32_t> Mesh::place_of(const Channel& channel) const {
  for (std::uint32_t place = 0; place < size_; ++place)
    if (channels_[place].get() == &channel) return place;
  return {};
}

void Mesh::on_inbound(Channel& channel, InboundMessage&& inbound) {
  const Envelope& envelope = inbound.envelope;
  std::shared_ptr<MeshListener> listener;
  std::uint32_t place = 0;
  bool is_flood = false;
  {
    Lock lock(mutex_);
    if (ended_) {
      lock.unlock();
      return drop(inbound);
    }
    switch (envelope.kind) {
      case EnvelopeKind::join:
        on_join(channel, inbound);
        return engine_->note_activity();
      case EnvelopeKind::hello:
        on_hello(channel, inbound.envelope);
        return engine_->note_activity();
      default:
        break;
    }
    const auto known = place_of(channel);
    if (!known) return;  // has not said who it is
    place = *known;
    switch (envelope.kind) {
      case EnvelopeKind::neighbour:
        if (place == 0) on_neighbour(inbound);
        return;
      case EnvelopeKind::refuse:
        on_refuse(place, inbound);
        return;
      default:
        break;
    }
    const auto found = listeners_.find(envelope.group);
    const auto removed = removed_.find(envelope.group);
    if (found != listeners_.end()) {
      listener = found->second.lock();
    } else if (removed != removed_.end()) {
      if (envelope.kind == EnvelopeKind::left && removed->second.reset(place).none())
        removed_.erase(removed);
    } else if (is_control(envelope.kind)) {
      is_flood = early_count_ >= kMostEarly;
      if (!is_flood) {
        early_[envelope.group].push_back({place, std::move(inbound)});
        ++early_count_;
        return;
      }
    }
  }
  if (listener != nullptr) return listener->on_inbound(place, std::move(inbound));
  drop(inbound);
  if (is_flood) channel.violation("more words to groups that nobody makes than fit");
}

// Memory

std::uint32_t Mesh::name_segment(const std::shared_ptr<Segment>& segment) {
  const Lock lock(mutex_);
  for (const Shown& shown : shown_)
    if (shown.segment == segment) return shown.id;
  shown_.push_back({segment, next_segment_id_++, {}});
  return shown_.back().id;
}

Result<bool> Mesh::publish(std::uint32_t place, const std::shared_ptr<Segment>& segment) {
  const std::uint32_t id = name_segment(segment);
  // end() and forget_segment() may run meanwhile: both forget what was shown.
  const auto find = [&]() TENDON_REQUIRES(mutex_) {
    return std::find_if(shown_.begin(), shown_.end(),
                        [&](const Shown& shown) { return shown.id == id; });
  };
  std::shared_ptr<Channel> peer;
  {
    const Lock lock(mutex_);
    const auto shown = find();
    if (shown != shown_.end() && shown->to[place]) return true;
    peer = channels_[place];
  }
  if (peer == nullptr) return false;
  TENDON_TRY(passed, peer->link().publish_segment(peer->pipe(), id, *segment));
  const Lock lock(mutex_);
  if (const auto shown = find(); passed && shown != shown_.end()) shown->to.set(place);
  return passed;
}

void Mesh::forget_segment(const std::shared_ptr<Segment>& segment) {
  const Lock lock(mutex_);
  std::erase_if(shown_, [&](const Shown& shown) { return shown.segment == segment; });
}

void Mesh::on_channel_lost(Channel& channel, const Error& error, Absence how) {
  std::vector<std::shared_ptr<MeshListener>> told;
  std::uint32_t place = 0;
  {
    const Lock lock(mutex_);
    const auto stranger = std::find_if(strangers_.begin(), strangers_.end(),
                                       [&](const auto& known) { return known.get() == &channel; });
    if (stranger != strangers_.end()) {
      // Its link is locked by whoever tells.
      engine_->schedule([gone = std::move(*stranger)] { gone->close(); });
      strangers_.erase(stranger);
    }
    std::erase_if(claims_, [&](const auto& claim) { return claim.second.channel == &channel; });
    early_hellos_.erase(&channel);
    if (const auto known = place_of(channel)) {
      place = *known;
      lost_[place] = {channel.shared_from_this(), error, how};
      forget_removed(place);
    } else {
      // Somebody may have taken its place before it could be told that it is gone.
      const auto retired = std::find_if(retired_.begin(), retired_.end(), [&](const Retired& each) {
        return each.channel.lock().get() == &channel;
      });
      if (retired == retired_.end()) return;
      place = retired->place;
      forget_removed(place);
    }
    for (const auto& [group, listener] : listeners_)
      if (auto strong = listener.lock()) told.push_back(std::move(strong));
  }
  for (const auto& listener : told) listener->on_lost(place, channel, error, how);
  const Lock lock(mutex_);
  admit_claim(place);
}

Result<std::shared_ptr<MessageSink>> Mesh::on_open(std::shared_ptr<Link> link, std::uint32_t pipe) {
  auto channel = std::make_shared<Channel>(engine_, std::move(link), pipe, weak_from_this());
  const Lock lock(mutex_);
  if (ended_) return Error{ErrorCode::unreachable, kWhere, "the group has ended"};
  if (strangers_.size() >= kMaxPlaces)
    return Error{ErrorCode::server_busy, kWhere, "too many members that do not say who they are"};
  strangers_.push_back(channel);
  return std::shared_ptr<MessageSink>(std::move(channel));
}

}  // namespace tendon::v0::detail
