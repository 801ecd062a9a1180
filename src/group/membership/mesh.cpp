// SPDX-License-Identifier: Apache-2.0
#include "group/membership/mesh.hpp"

#include "group/membership/farewell.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "group.join";

std::string rank_text(MeshPlace place) { return "rank " + std::to_string(place.value); }

Error refusal(std::string detail) {
  return Error{ErrorCode::invalid_argument, kWhere, std::move(detail)};
}

// Nobody will take it, and its sender must not wait for that.
void drop(const InboundMessage& inbound) {
  if (inbound.envelope.kind == EnvelopeKind::message) inbound.credit();
}

}  // namespace

Mesh::Mesh(std::shared_ptr<ContextCore> context, const Rendezvous& rendezvous, GroupOptions options)
    : context_(std::move(context)),
      rendezvous_(rendezvous),
      options_(std::move(options)),
      self_(rendezvous.rank().value),
      size_(rendezvous.size()),
      occupants_(size_),
      arrivals_(self_, size_),
      addresses_(size_) {}

// In a forked child a thread of the parent may have the lock.
Mesh::~Mesh() {
  if (!context_->forked()) end();
}

void Mesh::end() {
  std::vector<std::shared_ptr<MemberChannel>> channels;
  std::vector<std::shared_ptr<MemberChannel>> strangers;
  {
    const Lock lock(mutex_);
    if (std::exchange(ended_, true)) return;
    // Other owners of a share need none of the links and mappings. Whether a member was lost is
    // still asked: came_too_late().
    channels = occupants_.clear();
    strangers = strangers_.all();
    strangers_.clear();
  }
  for (const auto& acceptor : acceptors_) acceptor->close();
  if (context_->unusable()) return;
  std::erase(channels, nullptr);
  Farewell::say(*context_, std::move(channels));
  for (const auto& channel : strangers) channel->close();
}

Result<std::shared_ptr<Mesh>> Mesh::create(std::shared_ptr<ContextCore> context,
                                           const Rendezvous& rendezvous,
                                           const GroupOptions& options) {
  TENDON_CHECK(context->usable(kWhere));
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
  // A delivery holds a share meanwhile, which may be the last. Closing channels would then wait for
  // a lock that this thread has.
  const auto end = [](Mesh* last) {
    if (!MemberChannel::delivering_here()) {
      delete last;
      return;
    }
    const std::shared_ptr<ContextCore> its_core = last->context_;
    its_core->schedule([mesh = std::shared_ptr<Mesh>(last)] {});
  };
  return std::shared_ptr<Mesh>(new Mesh(std::move(context), rendezvous, options), end);
}

std::string Mesh::name_of(MeshPlace place) const {
  if (place.value >= size_) return rank_text(place);
  const auto at = channel(place);
  if (at == nullptr && place != self()) return rank_text(place);
  // The same on all members, since errors travel between them.
  std::string peer = place == self() ? context_->identity().to_string() : at->link().peer_name();
  // "vision (host a, pid 12)" -> "rank 3 (vision, host a, pid 12)"
  if (const auto open = peer.find(" ("); open != std::string::npos && peer.back() == ')') {
    peer.pop_back();
    peer.replace(open, 2, ", ");
  }
  return rank_text(place) + " (" + peer + ")";
}

// Groups

void Mesh::add(std::uint64_t group, std::weak_ptr<MeshListener> listener) {
  std::vector<MeshListeners::Early> early;
  std::map<std::uint32_t, Occupants::Lost> lost;
  auto strong = listener.lock();
  {
    const Lock lock(mutex_);
    early = listeners_.add(group, std::move(listener));
    lost = occupants_.lost();
  }
  for (auto& word : early) strong->on_inbound(word.place, std::move(word.inbound));
  for (const auto& [place, what] : lost)
    strong->on_lost({place}, *what.channel, what.error, what.how);
}

bool Mesh::remove(std::uint64_t group, const MemberMask& staying) {
  const Lock lock(mutex_);
  listeners_.remove(group, staying);
  return listeners_.empty();
}

void Mesh::keep_sending() {
  if (!sending_.exchange(true)) context_->add_work(shared_from_this());
}

std::vector<std::shared_ptr<MemberChannel>> Mesh::sending() const {
  const Lock lock(mutex_);
  std::vector<std::shared_ptr<MemberChannel>> sending;
  for (const auto& channel : occupants_.channels())
    if (channel != nullptr && !channel->lost() && channel->queued_count() != 0)
      sending.push_back(channel);
  return sending;
}

bool Mesh::progress() {
  for (const auto& channel : sending()) channel->advance();
  if (!sending().empty()) return true;
  sending_ = false;
  // Another thread may have queued a message since.
  return !sending().empty() && !sending_.exchange(true);
}

Unsent Mesh::unsent() const {
  Unsent unsent;
  for (const auto& channel : sending()) {
    unsent.peer = channel->link().peer_name();
    unsent.context = channel->link().peer().context;
    unsent.message_count += channel->queued_count();
  }
  return unsent;
}

// Events of channels

void Mesh::on_inbound(MemberChannel& channel, InboundMessage&& inbound) {
  const Envelope& envelope = inbound.envelope;
  MeshListeners::Route route;
  std::uint32_t place = 0;
  {
    Lock lock(mutex_);
    if (ended_) {
      lock.unlock();
      return drop(inbound);
    }
    switch (envelope.kind) {
      case EnvelopeKind::join:
        on_join(channel, inbound);
        return context_->note_activity();
      case EnvelopeKind::hello:
        on_hello(channel, inbound.envelope);
        return context_->note_activity();
      default:
        break;
    }
    const auto known = occupants_.place_of(channel);
    if (!known) return;  // has not said which member it is
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
    route = listeners_.route({place}, std::move(inbound));
  }
  // NOLINTBEGIN(bugprone-use-after-move): route() takes it only where it is kept
  switch (route.fate) {
    case MeshListeners::Fate::heard:
      return route.listener->on_inbound({place}, std::move(inbound));
    case MeshListeners::Fate::kept:
      return;
    case MeshListeners::Fate::flood:
      channel.violation("more words to groups that nobody makes than fit");
      return drop(inbound);
    case MeshListeners::Fate::nobody:
      return drop(inbound);
  }
  // NOLINTEND(bugprone-use-after-move)
}

// Memory

Result<bool> Mesh::publish(MeshPlace place, const std::shared_ptr<Segment>& segment) {
  const auto peer = channel(place);
  if (peer == nullptr) return false;
  TENDON_TRY(shown, context_->publishing().show(peer->link(), peer->pipe(), segment));
  return shown == Sent::done;
}

void Mesh::on_channel_lost(MemberChannel& channel, const Error& error, Absence how) {
  std::vector<std::shared_ptr<MeshListener>> told;
  std::uint32_t place = 0;
  {
    const Lock lock(mutex_);
    // The caller holds the lock of its link.
    if (auto stranger = strangers_.take(channel))
      context_->schedule([gone = std::move(stranger)] { gone->close(); });
    const auto known = occupants_.lose(channel, error, how);
    if (!known) return;
    place = *known;
    listeners_.forget_place({place});
    told = listeners_.all();
  }
  for (const auto& listener : told) listener->on_lost({place}, channel, error, how);
  const Lock lock(mutex_);
  admit_claim(place);
}

Result<std::shared_ptr<MessageSink>> Mesh::on_open(std::shared_ptr<Link> link,
                                                   const Descriptor& open, Bytes) {
  auto channel =
      std::make_shared<MemberChannel>(context_, std::move(link), open.pipe, weak_from_this());
  const Lock lock(mutex_);
  if (ended_) return Error{ErrorCode::unreachable, kWhere, "the group has ended"};
  // The caller may hold the lock of its link.
  if (auto stranger = strangers_.add(channel)) {
    context_->schedule([stranger = std::move(stranger)] {
      stranger->refuse({ErrorCode::server_busy, kWhere, "too many that have no place here"});
    });
  }
  return std::shared_ptr<MessageSink>(std::move(channel));
}

}  // namespace tendon::v0::detail
