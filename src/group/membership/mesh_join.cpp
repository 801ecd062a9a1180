// SPDX-License-Identifier: Apache-2.0
// How the members of a mesh find each other: at first, and when a process takes a place again.
#include <algorithm>
#include <cstring>

#include "core/text.hpp"
#include "group/membership/attempts.hpp"
#include "group/membership/listening.hpp"
#include "group/membership/mesh.hpp"
#include "runtime/connect.hpp"
#include "runtime/strangers.hpp"
#include "session/nonce128.hpp"
#include "session/proofs.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "group.join";
constexpr auto kPause = std::chrono::milliseconds(5);

// The meaning of `tag` in a `refuse`.
constexpr std::uint32_t kRefusedForNow = 1;  // until the earlier process is known to be dead
constexpr std::uint32_t kGivenUp = 2;        // by rank 0: there will be no group
constexpr std::uint32_t kLetIn = 3;          // by rank 0: that has passed

}  // namespace

Result<void> Mesh::meet(Deadline deadline) {
  if (self_ != 0) return visit(deadline);
  TENDON_TRY(id, random_nonce());
  std::uint64_t own_group = 0;
  std::memcpy(&own_group, id.data(), sizeof own_group);
  {
    const Lock lock(mutex_);
    first_group_.begin(own_group);
  }
  if (size_ == 1 && rendezvous_.store() == nullptr) return {};  // nobody to meet
  return host(deadline);
}

Result<void> Mesh::host(Deadline deadline) {
  auto listens = listen_as_rank0(deadline);
  if (!listens) {
    Error error = std::move(listens).error();
    error.detail = "rank 0 listens for the others: " + error.detail;
    if (error.code == ErrorCode::address_in_use) {
      error.detail +=
          "; if it is this process that has joined there before: a group of the same members is "
          "made "
          "by subgroup(), another one by another rendezvous";
    }
    return error;
  }
  context_->add_handler(weak_from_this());
  if (rendezvous_.store() != nullptr) TENDON_CHECK(publish_address(deadline));
  const bool complete = context_->wait(nullptr, deadline, [this] {
    const Lock lock(mutex_);
    return arrivals_.complete() || context_->unusable();
  });
  TENDON_CHECK(context_->usable(kWhere));
  const Lock lock(mutex_);
  if (!complete) {
    Error error{
        ErrorCode::timeout, kWhere,
        arrivals_.missing_ranks() + " did not come to " + address_ + " before the deadline"};
    for (const auto& [place, lost] : occupants_.lost()) {
      error.detail += "; rank " + std::to_string(place) + " (" + lost.channel->link().peer_name() +
                      ") came and has gone again";
    }
    if (refused_) error.detail += "; refused: " + refused_->error.detail;
    if (!listens->empty()) error.detail += "; " + *listens;
    return give_up(std::move(error));
  }
  for (const auto& [place, lost] : occupants_.lost()) {
    return give_up({ErrorCode::peer_lost, kWhere,
                    "rank " + std::to_string(place) + " (" + lost.channel->link().peer_name() +
                        ") came and has gone again before all were there: " + lost.error.detail});
  }
  const MemberMask& survivors = first_group_.survivors();
  if (survivors.any()) arrivals_.come_late();
  for (std::uint32_t place = 1; place < size_; ++place)
    if (!survivors[place]) introduce(place);
  joined_ = true;
  return {};
}

// Tells the arrived processes why. They would take the silent end of a channel for the end of a
// group that was here before.
Error Mesh::give_up(Error why) {
  const Envelope word{.kind = EnvelopeKind::refuse, .tag = kGivenUp};
  auto all = strangers_.all();
  const auto& members = occupants_.channels();
  all.insert(all.end(), members.begin(), members.end());
  for (const auto& channel : all)
    if (channel != nullptr && !channel->lost()) channel->post(word, as_bytes(why.detail));
  return why;
}

void Mesh::on_context_closed() {
  const Lock lock(mutex_);
  if (self_ == 0 && !joined_)
    (void)give_up({ErrorCode::context_closed, kWhere, "its Context was closed"});
}

// Tells a member its peers to connect to: all that were here before it, or have a lower rank.
void Mesh::introduce(std::uint32_t place) {
  const bool late = joined_ || arrivals_.late();
  MemberChannel& newcomer = *occupants_.at(place);
  Envelope word{.kind = EnvelopeKind::neighbour, .group = first_group_.id(), .count = size_};
  for (std::uint32_t other = 1; other < size_; ++other) {
    const bool was_here = joined_ || first_group_.survivors()[other];
    if (other == place || !(was_here || other < place)) continue;
    if (occupants_.at(other) == nullptr || (late && !occupants_.here(other))) continue;
    word.extra = other;
    newcomer.post(word, as_bytes(addresses_[other]));
  }
  word.extra = 0;  // the last one
  word.tag = late ? 1 : 0;
  newcomer.post(word);
}

Result<void> Mesh::visit(Deadline deadline) {
  TENDON_TRY(dialled, reach_rank0(deadline));
  {
    const Lock lock(mutex_);
    put(0, dialled.channel);
    arrivals_.come(0);
  }
  TENDON_CHECK(listen_as_member(dialled.local_host, deadline));
  dialled.channel->post({.kind = EnvelopeKind::join, .from = self(), .count = size_},
                        as_bytes(address_));

  const bool told = context_->wait(nullptr, deadline, [this] {
    const Lock lock(mutex_);
    return first_group_.id() != 0 || (refused_ && !refused_->may_pass) ||
           occupants_.lost().contains(0) || context_->unusable();
  });
  TENDON_CHECK(context_->usable(kWhere));
  std::vector<std::string> addresses;
  {
    const Lock lock(mutex_);
    if (first_group_.id() == 0) {
      if (refused_) return refused_->error;
      if (occupants_.lost().contains(0)) return rank0_gone();
    }
    if (!told) {
      return Error{ErrorCode::timeout, kWhere,
                   "rank 0, " + dialled.channel->link().peer_name() +
                       ", still waits for other members of the group of " + std::to_string(size_)};
    }
    addresses = addresses_;
  }
  for (std::uint32_t place = 1; place < size_; ++place)
    if (!addresses[place].empty()) TENDON_CHECK(connect_to(place, addresses[place], deadline));
  TENDON_CHECK(wait_until_complete("connecting to every other member", deadline));
  const Lock lock(mutex_);
  joined_ = true;
  return {};
}

void Mesh::seek_rank0(Deadline deadline) {
  if (self_ == 0 || here({0})) return;
  auto dialled = reach_rank0(deadline);
  if (!dialled) return;
  Lock lock(mutex_);
  // Another call, of this group or of one made from it, may have been faster.
  if (occupants_.here(0)) {
    lock.unlock();
    return dialled->channel->close();
  }
  put(0, dialled->channel);
  arrivals_.come(0);
  dialled->channel->post(
      {.kind = EnvelopeKind::join, .from = self(), .group = first_group_.id(), .count = size_},
      as_bytes(address_));
}

void Mesh::look_for_rank0(Deadline deadline) {
  if (self_ == 0 || here({0})) return;
  const auto dialled = reach_rank0(deadline);
  if (!dialled) return;
  dialled->channel->close();
  const Lock lock(mutex_);
  rank0_replaced_ = true;
}

// Precondition: rank 0 has been lost.
Error Mesh::rank0_gone() const {
  const Occupants::Lost& lost = occupants_.lost().at(0);
  return Error{ErrorCode::peer_lost, kWhere,
               "rank 0, " + lost.channel->link().peer_name() + ", went away: " + lost.error.detail};
}

// Precondition: a process that was at this place before is lost.
void Mesh::put(std::uint32_t place, std::shared_ptr<MemberChannel> channel) {
  auto before = occupants_.put(place, std::move(channel));
  // A live link would keep the channel, and count it. Its own lock may be held here.
  if (before != nullptr && !before->link().ended())
    context_->schedule([before = std::move(before)] { before->close(); });
}

bool Mesh::came_too_late() const {
  const Lock lock(mutex_);
  if (self_ == 0) return false;
  const auto& lost = occupants_.lost();
  const auto rank0 = lost.find(0);
  // Rank 0 of a group that is being made says why it leaves.
  if (first_group_.id() == 0) {
    const bool given_up = refused_ && !refused_->may_pass;
    return !given_up && rank0 != lost.end() &&
           (rank0->second.error.code == ErrorCode::end_of_stream ||
            rank0->second.error.code == ErrorCode::server_busy);
  }
  if (!arrivals_.late()) return false;
  if (!joined_) return !lost.empty();
  if (rank0_replaced_) return true;
  // Processes that have arrived since do not count: they are in the same situation.
  for (std::uint32_t place = 1; place < size_; ++place)
    if (arrivals_.dialled(place) && occupants_.here(place)) return false;
  return rank0 != lost.end();
}

// Tries as long as that can help. It cannot once the member of this place has arrived by itself, or
// rank 0, which announced the addresses, is lost.
Result<Mesh::Dialled> Mesh::dial(std::uint32_t place, std::span<const std::string> addresses,
                                 std::string_view more, Deadline deadline) {
  const auto is_in_vain = [this, place] {
    const Lock lock(mutex_);
    return place != 0 && (occupants_.here(place) || occupants_.lost().contains(0));
  };
  Attempts attempts;
  for (;;) {
    TENDON_TRY(dialled, dial_each(addresses, deadline, attempts));
    if (dialled) return *std::move(dialled);
    if (is_in_vain()) return attempts.nobody_answered(more);
    TENDON_TRY(goes_on, pause_between(attempts, deadline));
    if (!goes_on) return attempts.nobody_answered(more);
  }
}

// Tries each address once. Empty: another round may succeed.
Result<std::optional<Mesh::Dialled>> Mesh::dial_each(std::span<const std::string> addresses,
                                                     Deadline deadline, Attempts& attempts) {
  // A store may name a dead process, so it is asked again.
  const bool is_all = addresses.size() == 1 && rendezvous_.store() == nullptr;
  for (const std::string& address : addresses) {
    auto connected = connect(*context_, address, profile_of(options_),
                             is_all ? deadline : earlier(deadline, Deadline(attempts.piece())));
    if (connected) {
      if (auto channel = open_channel(*connected))
        return std::optional<Dialled>({std::move(channel), connected->local_host});
    }
    TENDON_CHECK(context_->usable(kWhere));
    attempts.note(address, connected ? connected->link->end_error() : std::move(connected).error());
  }
  if (auto error = attempts.final_answer()) return *std::move(error);
  return std::optional<Dialled>();
}

// False: there is no time for another round.
Result<bool> Mesh::pause_between(Attempts& attempts, Deadline deadline) {
  if (deadline.remaining() <= attempts.pause()) return false;
  context_->wait(nullptr, attempts.pause(), [this] { return context_->unusable(); });
  TENDON_CHECK(context_->usable(kWhere));
  attempts.begin_round();
  return true;
}

// Null: the link has ended.
std::shared_ptr<MemberChannel> Mesh::open_channel(const Connected& connected) {
  Link& link = *connected.link;
  std::shared_ptr<MemberChannel> channel;
  {
    const Lock receiving(link.receive_mutex());
    if (link.ended()) return nullptr;
    const std::uint32_t pipe = link.next_pipe_id();
    channel = std::make_shared<MemberChannel>(context_, connected.link, pipe, weak_from_this());
    link.attach(pipe, channel);
  }
  Descriptor open;
  open.kind = MessageKind::open;
  open.pipe = channel->pipe();
  open.header_bytes = static_cast<std::uint16_t>(connected.ticket.size());
  link.post(open, connected.ticket);
  return channel;
}

Result<void> Mesh::connect_to(std::uint32_t place, const std::string& where, Deadline deadline) {
  const auto addresses = split_addresses(where);
  if (addresses.empty()) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 "rank " + std::to_string(place) + " says that it listens nowhere"};
  }
  auto dialled =
      dial(place, addresses, "it has ended, or cannot be reached there from this host", deadline);
  Envelope hello{.kind = EnvelopeKind::hello, .from = self()};
  {
    Lock lock(mutex_);
    if (occupants_.here(place)) {
      lock.unlock();
      if (dialled) dialled->channel->close();
      return {};
    }
    TENDON_CHECK(context_->usable(kWhere));
    if (!dialled && occupants_.lost().contains(0)) return rank0_gone();
    if (dialled) {
      put(place, dialled->channel);
      arrivals_.dial(place);
      hello.group = first_group_.id();
    }
  }
  if (!dialled) {
    Error error = std::move(dialled).error();
    error.detail = name_of({place}) + ": " + error.detail;
    return error;
  }
  dialled->channel->post(hello);
  return {};
}

// A place whose process had no room for this member: it is to be asked again.
std::optional<std::uint32_t> Mesh::take_turned_away() {
  for (const auto& [place, lost] : occupants_.lost()) {
    if (lost.error.code != ErrorCode::server_busy || place == 0) continue;
    const std::uint32_t busy = place;
    occupants_.forget_loss(busy);
    return busy;
  }
  return {};
}

Result<void> Mesh::wait_until_complete(std::string_view doing, Deadline deadline) {
  bool done = false;
  for (;;) {
    done = context_->wait(nullptr, deadline, [this] {
      const Lock lock(mutex_);
      return arrivals_.complete() || !occupants_.lost().empty() || context_->unusable();
    });
    TENDON_CHECK(context_->usable(kWhere));
    std::optional<std::uint32_t> again;
    std::string address;
    {
      const Lock lock(mutex_);
      if (!deadline.has_passed()) again = take_turned_away();
      if (again) address = addresses_[*again];
    }
    if (!again) break;
    context_->wait(nullptr, earlier(deadline, Deadline(kPause)),
                   [this] { return context_->unusable(); });
    TENDON_CHECK(connect_to(*again, address, deadline));
  }
  const Lock lock(mutex_);
  if (arrivals_.complete()) return {};
  if (!done) {
    return Error{ErrorCode::timeout, kWhere,
                 std::string(doing) + ": " + arrivals_.missing_ranks() +
                     " did not connect before the deadline"};
  }
  return Error{ErrorCode::peer_lost, kWhere,
               std::string(doing) + ": " + occupants_.lost().begin()->second.error.detail};
}

// Words of members

void Mesh::on_neighbour(const InboundMessage& inbound) {
  const Envelope& envelope = inbound.envelope;
  if (first_group_.id() != 0 || self_ == 0 || envelope.extra >= size_ || envelope.extra == self_)
    return;
  if (envelope.extra != 0) {
    addresses_[envelope.extra] = inbound.text();
    return;
  }
  if (envelope.tag != 0) arrivals_.come_late();
  first_group_.learn(envelope.group);
  for (const auto& [channel, hello] : strangers_.take_hellos()) on_hello(*channel, hello);
}

void Mesh::on_refuse(std::uint32_t place, const InboundMessage& inbound) {
  const std::string why = cleaned(inbound.text());
  const std::uint32_t tag = inbound.envelope.tag;
  if (tag == kLetIn) return refused_.reset();
  Error error{ErrorCode::invalid_argument, kWhere, why};
  if (tag == kGivenUp) {
    error = {ErrorCode::peer_lost, kWhere,
             "rank " + std::to_string(place) + " (" + occupants_.at(place)->link().peer_name() +
                 ") has given up: " + why};
  }
  refused_ = Refusal{std::move(error), tag == kRefusedForNow};
}

// Seats this stranger at the place. False if that is taken.
bool Mesh::settle(MemberChannel& channel, std::uint32_t place) {
  if (occupants_.here(place)) return false;
  auto stranger = strangers_.take(channel);
  if (stranger == nullptr) return false;
  put(place, std::move(stranger));
  arrivals_.come(place);
  return true;
}

void Mesh::on_join(MemberChannel& channel, const InboundMessage& inbound) {
  const Envelope& envelope = inbound.envelope;
  const std::uint32_t rank = envelope.from.in_mesh().value;
  std::string why;
  bool may_pass = false;
  if (self_ != 0) {
    why = "this is rank " + std::to_string(self_) + ", not rank 0";
  } else if (envelope.count != size_) {
    why = "rank " + std::to_string(rank) + " (" + channel.link().peer_name() +
          ") says that the group has " + std::to_string(envelope.count) + " members, rank 0 says " +
          std::to_string(size_);
  } else if (rank == 0 || rank >= size_) {
    why = "two processes are rank " + std::to_string(rank) + ": " + channel.link().peer_name() +
          " and the one that listens at the rendezvous";
  } else if (envelope.group != 0 && joined_) {
    // This process was cut off and left out: it believes that rank 0, which is alive, was lost.
    why = "rank " + std::to_string(rank) + " (" + channel.link().peer_name() +
          ") comes out of an epoch that is over; it has to join anew";
  } else if (occupants_.here(rank)) {
    const Link& link = occupants_.at(rank)->link();
    why = "two processes are rank " + std::to_string(rank) + ": " + channel.link().peer_name() +
          " and, before it, " + link.peer_name();
    const PeerIdentity& asking = channel.link().peer();
    const PeerIdentity& before = link.peer();
    if (asking.pid == before.pid && asking.host == before.host)
      why += ", the same: a process joins a group once, subgroup() and split() make others of it";
    // The member at this place may be dead already, but not known to be. Or it is the asker itself,
    // after its first attempt.
    may_pass = joined_ || &channel.link() == &link;
    if (may_pass) strangers_.claim(channel, {rank, std::string(inbound.text()), envelope.group});
  } else if (!first_group_.admits(envelope.group)) {
    why = "rank " + std::to_string(rank) + " (" + channel.link().peer_name() +
          ") is of another group than the processes that came back before it";
  }
  if (why.empty()) return seat(channel, rank, std::string(inbound.text()), envelope.group);
  refuse_stranger(context_.get(), kWhere, stranger_at(channel.link()), why);
  refused_ = Refusal{Error{ErrorCode::invalid_argument, kWhere, why}, may_pass};
  channel.post({.kind = EnvelopeKind::refuse, .tag = may_pass ? kRefusedForNow : 0u},
               as_bytes(why));
}

// For rank 0. `group` is not 0 for a member of a group that lost its rank 0.
void Mesh::seat(MemberChannel& channel, std::uint32_t rank, std::string address,
                std::uint64_t group) {
  if (!settle(channel, rank)) return;
  addresses_[rank] = std::move(address);
  if (!joined_) first_group_.come(rank, group);
  if (joined_) introduce(rank);
}

// The answer tells the connecting peer that it is known here, so that memory may be shown to it:
// that does not arrive in order with messages.
void Mesh::on_hello(MemberChannel& channel, const Envelope& envelope) {
  // It may belong to a group that was here before.
  if (first_group_.id() == 0) return strangers_.keep_hello(channel, envelope);
  if (const auto place = occupants_.place_of(channel)) {
    if (*place == envelope.from.in_mesh().value) arrivals_.answer(*place);
    return;
  }
  const std::uint32_t from = envelope.from.in_mesh().value;
  const bool right =
      from != 0 && from < size_ && from != self_ && envelope.group == first_group_.id();
  if (right && settle(channel, from)) return greet(from);
  if (right && (joined_ || arrivals_.late())) {
    return strangers_.claim(channel, {from, {}, 0});  // until the earlier one is known to be dead
  }
  const std::string why = "rank " + std::to_string(from) + " is not expected here, at rank " +
                          std::to_string(self_) + " of " + std::to_string(size_);
  channel.post({.kind = EnvelopeKind::refuse}, as_bytes(why));
}

void Mesh::greet(std::uint32_t place) {
  occupants_.at(place)->post(
      {.kind = EnvelopeKind::hello, .from = self(), .group = first_group_.id()});
}

// Handles the loss of the process at this place: another that waits for it may take it.
void Mesh::admit_claim(std::uint32_t place) {
  const auto claimed = strangers_.take_claim(place);
  if (!claimed) return;
  if (self_ == 0) {
    if (refused_ && refused_->may_pass) refused_.reset();
    claimed->channel->post({.kind = EnvelopeKind::refuse, .tag = kLetIn});
    return seat(*claimed->channel, place, claimed->claim.address, claimed->claim.group);
  }
  if (settle(*claimed->channel, place)) greet(place);
}

}  // namespace tendon::v0::detail
