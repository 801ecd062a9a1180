// SPDX-License-Identifier: Apache-2.0
#include "fabric/nodes/node_core.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <tendon/fabric/limits.hpp>
#include <tuple>
#include <utility>

#include "fabric/calls/caller.hpp"
#include "fabric/discovery/node_environment.hpp"
#include "fabric/discovery/peer_view.hpp"
#include "fabric/keys/name_chunk.hpp"
#include "fabric/plain/plain_service.hpp"
#include "fabric/ways/announced_dial.hpp"
#include "runtime/reach.hpp"
#include "session/interfaces.hpp"
#include "session/proofs.hpp"

namespace tendon::v0::detail {
namespace {

std::string prefix_of(std::uint32_t subscriber) {
  return "subscriber " + std::to_string(subscriber) + ' ';
}

std::string target_of(std::uint32_t subscriber, const PublisherId& publisher) {
  return prefix_of(subscriber) + publisher.context.to_string() + ' ' +
         std::to_string(publisher.entity);
}

PublisherId id_of(const EntityAnnouncement& publisher) {
  return {publisher.context, publisher.entity};
}

// A name, or a path of this host, is not announced: others cannot dial it. A node that listens at
// every interface announces their addresses.
Result<std::vector<Address>> announced_for(const Address& address) {
  if (address.kind() != AddressKind::ip) return std::vector<Address>();
  if (address.host() != "0.0.0.0" && address.host() != "::") return std::vector<Address>{address};
  TENDON_TRY(hosts, announceable_hosts(address.host() == "::" ? AF_INET6 : AF_INET));
  if (hosts.empty()) {
    return Error{ErrorCode::invalid_argument, "node.join",
                 "listen = '" + address.to_string() +
                     "': no interface of this host that is up has a route and an address which "
                     "others can dial; name an address, or leave it out"};
  }
  if (hosts.size() > kMaxAnnouncedAddresses) hosts.resize(kMaxAnnouncedAddresses);
  std::vector<Address> announced;
  for (const std::string& host : hosts) {
    TENDON_TRY(one, Address::parse(host + ':' + std::to_string(address.port())));
    announced.push_back(std::move(one));
  }
  return announced;
}

}  // namespace

// Joining and leaving

Result<Node> NodeCore::join(const std::shared_ptr<ContextCore>& context, NodeOptions options,
                            Deadline deadline) {
  TENDON_CHECK(context->usable("node.join"));
  TENDON_CHECK(refuse_secure(security_of(options), "node.join", "topics and calls"));
  options.domain = domain_or_default(std::move(options.domain));
  options.plain_keys = options.plain.over(std::move(options.plain_keys));
  TENDON_CHECK(name_to_chunk(options.domain));
  TENDON_CHECK(name_to_chunk(options.name));
  TENDON_TRY(fabric, ContextFabric::of(context, profile_of(options)));
  for (const std::string& keys : options.plain_keys) TENDON_CHECK(KeyExpression::canonize(keys));
  TENDON_TRY(ways, fabric->ways_of(options, deadline));
  if (!options.plain_keys.empty() && ways.zenoh == nullptr) return no_plain_peers("node.join");
  auto core = std::make_shared<NodeCore>(std::move(fabric), std::move(options), std::move(ways));
  if (auto opened = core->open(deadline); !opened) {
    core->close();
    return std::move(opened).error();
  }
  return Node(std::move(core));
}

NodeCore::NodeCore(std::shared_ptr<ContextFabric> fabric, NodeOptions options,
                   ContextFabric::Ways ways)
    : fabric_(std::move(fabric)),
      options_(std::move(options)),
      ways_(std::move(ways)),
      caller_(std::make_shared<Caller>(fabric_->entities(), fabric_->dialler())),
      discovery_(options_.domain, ways_.discoveries),
      known_(options_.domain) {
  const bool awaits = ways_.zenoh != nullptr && options_.discovery == DiscoveryNeed::background;
  if (awaits) news_.await_routers();
}

Result<void> NodeCore::open(Deadline deadline) {
  self_ = {.domain = options_.domain,
           .name = options_.name,
           .context = context()->id(),
           .start = context()->identity().incarnation,
           .unix_on = fabric_->unix_on(),
           .addresses = {}};
  if (!options_.listen.empty()) {
    TENDON_TRY(acceptor, fabric_->listen(options_.listen));
    acceptor_ = std::move(acceptor);
    address_ = acceptor_->address();
    TENDON_TRY(address, Address::parse(address_));
    TENDON_TRY(announced, announced_for(address));
    self_.addresses = std::move(announced);
  }
  TENDON_TRY(key, to_key(self_));
  fabric_->add(weak_from_this());
  discovery_.watch([weak = weak_from_this()] {
    if (const auto node = weak.lock()) node->look(DiscoveryTurn::begin());
  });
  TENDON_CHECK(discovery_.announce(key));
  TENDON_CHECK(discovery_.follow_name(options_.name));
  look(DiscoveryTurn::whole());
  const std::vector<std::string> peers = options_.peers.value_or(std::vector<std::string>());
  for (const std::string& peer : peers) {
    TENDON_CHECK(Address::parse(peer));
    TENDON_CHECK(fabric_->peers().add_peer(peer));
  }
  (void)context()->wait(nullptr, deadline, [&] {
    return context()->unusable() || std::ranges::all_of(peers, [&](const std::string& peer) {
             return fabric_->peers().has_dialled(peer);
           });
  });
  return context()->usable("node.join");
}

Result<void> NodeCore::survey(Deadline deadline) {
  TENDON_CHECK(context()->usable("node.survey"));
  TENDON_CHECK(discovery_.follow_all());
  const bool complete = context()->wait(nullptr, deadline, [&] {
    return context()->unusable() || discovery_.picture() == Picture::complete;
  });
  TENDON_CHECK(context()->usable("node.survey"));
  look(DiscoveryTurn::whole());
  if (complete) return {};
  return Error{
      ErrorCode::timeout, "node.survey",
      "discovery has not told all that is there until the deadline; what it told is known" +
          but_no_router()};
}

std::string NodeCore::but_no_router() const {
  const std::string absence = discovery_.absence();
  return absence.empty() ? absence : ": " + absence;
}

void NodeCore::close() {
  if (context()->forked()) return;
  std::vector<std::shared_ptr<Follower>> subscribers;
  {
    const Lock looking(looking_);
    const Lock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    subscribers = interest_.subscribers.all();
    interest_.subscribers.clear();
  }
  discovery_.close();
  if (acceptor_ != nullptr) acceptor_->close();
  caller_->close();
  for (const auto& subscriber : subscribers)
    fabric_->dialler()->drop_all(prefix_of(subscriber->entity()));
}

// Plain Zenoh peers

bool NodeCore::hears_plain_peers_on(const KeyExpression& keys) const {
  return std::ranges::any_of(options_.plain_keys, [&](const std::string& text) {
    const auto pattern = KeyExpression::canonize(text);
    return pattern && pattern->includes(keys);
  });
}

Result<bool> NodeCore::has_plain_subscribers(const KeyExpression& keys, Deadline deadline) {
  constexpr std::string_view kHere = "node.has_plain_subscribers";
  TENDON_CHECK(context()->usable(kHere));
  if (ways_.zenoh == nullptr) return no_plain_peers(kHere);
  TENDON_TRY(publisher, ways_.zenoh->publisher(keys, Audience::other_sessions, [](Matching) {}));
  // A router reports the subscribers that it knows before it ends a later request.
  struct Asked {
    std::atomic<bool> over{false};
    std::atomic<bool> whole{false};
  };
  const auto asked = std::make_shared<Asked>();
  const auto on_end = [asked, context = context()](Ending ending) {
    asked->whole = ending == Ending::complete;
    asked->over = true;
    context->wake_others();
  };
  constexpr std::chrono::milliseconds kMost = std::chrono::minutes(1);
  const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<Deadline::Clock::duration>(deadline.remaining(), kMost));
  TENDON_TRY(request, ways_.zenoh->get(
                          keys, timeout, [](std::string_view) {}, on_end));
  (void)context()->wait(nullptr, deadline, [&] { return context()->unusable() || asked->over; });
  TENDON_CHECK(context()->usable(kHere));
  if (publisher->matching() == Matching::somebody) return true;
  if (asked->whole) return false;
  return Error{
      ErrorCode::timeout, kHere,
      "no router said until the deadline who subscribes to " + keys.text() + but_no_router()};
}

// Events

void NodeCore::on_event(std::function<void(const FabricEvent&)> callback) {
  if (!context()->forked()) events_.add(std::move(callback));
}

void NodeCore::tell(FabricEvent event) {
  events_.tell(*context(), shared_from_this(), std::move(event));
}

void NodeCore::on_directory_change(const DirectoryChange& change) {
  tell(
      {.kind = FabricEventKind::runtime_directory_changed,
       .key = {},
       .node = options_.name,
       .reason = "served in '" + change.to + "', before in '" + change.from + "': " + change.reason,
       .old_directory = change.from,
       .new_directory = change.to});
}

void NodeCore::tell_of_twins(const std::map<std::string, std::size_t>& name_counts) {
  for (const auto& [name, count] : name_counts) {
    if (!news_.is_twin(name, count)) continue;
    tell({.kind = FabricEventKind::duplicate_name,
          .key = {},
          .node = name,
          .reason = std::to_string(count) + " nodes of domain " + options_.domain +
                    " announce this name: subscribers without newest_only get the samples of "
                    "each"});
  }
}

// A token is a hint: its loss ends nothing. It may also be lost before a channel ends.
void NodeCore::tell_of_undiscoverable(const std::map<ContextId, std::string>& gone) {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [context, name] : gone) {
    if (news_.note_missing(context, name, now))
      (void)this->context()->add_timed(Deadline::at(now + DiscoveryNews::kLasts), weak_from_this());
  }
  news_.tell_of_missing(
      now,
      [&](const ContextId& context) {
        return whereabouts_of(context) || !is_connected_to(context);
      },
      [&](const std::string& name) {
        tell({.kind = FabricEventKind::undiscoverable,
              .key = {},
              .node = name,
              .reason = "discovery tells of it no more, and its link lives: samples go on, and a "
                        "lost link is not dialled until discovery tells of it again"});
      });
}

void NodeCore::tell_of_routers() {
  const std::string absence = discovery_.absence();
  std::optional<DiscoveryNews::Time> look_at;
  const auto news =
      news_.note_routers(absence.empty() ? DiscoveryNews::Answer::one : DiscoveryNews::Answer::none,
                         std::chrono::steady_clock::now(), look_at);
  if (look_at) (void)context()->add_timed(Deadline::at(*look_at), weak_from_this());
  if (news == DiscoveryNews::RouterNews::found) {
    tell({.kind = FabricEventKind::discovery_found,
          .key = {},
          .node = {},
          .reason = "a router answers: what is announced is told of again"});
  } else if (news == DiscoveryNews::RouterNews::lost) {
    tell({.kind = FabricEventKind::discovery_lost,
          .key = {},
          .node = {},
          .reason = absence + ": links go on, and nothing new is found until one does"});
  }
}

// Reports peers that are not heard in full, or do not hear all of ours.
void NodeCore::tell_of_troubles() {
  for (const AnnouncingTrouble& trouble : discovery_.take_troubles()) {
    tell({.kind = FabricEventKind::unreachable,
          .key = {},
          .node = trouble.peer,
          .reason = std::string(error_info(trouble.why.code).name) + ": " + trouble.why.detail});
  }
}

// Entities

Result<KeyExpression> NodeCore::key_of(EntityAnnouncement said) const {
  said.domain = options_.domain;
  said.context = context()->id();
  return to_key(said);
}

Result<void> NodeCore::announce(EntityAnnouncement said, std::string_view where) {
  {
    const Lock lock(mutex_);
    if (closed_) return Error{ErrorCode::pipe_closed, where, "the node was closed"};
  }
  TENDON_TRY(key, key_of(std::move(said)));
  return discovery_.announce(key);
}

void NodeCore::withdraw(EntityAnnouncement said) {
  if (const auto key = key_of(std::move(said))) discovery_.withdraw(*key);
}

Result<void> NodeCore::follow(const std::shared_ptr<Follower>& subscriber,
                              EntityAnnouncement said) {
  TENDON_TRY(key, key_of(std::move(said)));
  {
    const Lock lock(mutex_);
    if (closed_) return Error{ErrorCode::pipe_closed, "subscriber.declare", "the node was closed"};
    interest_.subscribers.add(subscriber->entity(), subscriber->keys(), subscriber);
  }
  TENDON_CHECK(discovery_.follow(EntityKind::publisher, subscriber->keys()));
  TENDON_CHECK(discovery_.announce(key));
  std::set<ContextId> touched;
  {
    const Lock looking(looking_);
    std::vector<Match> matches;
    {
      const Lock lock(mutex_);
      known_.publishers().each_of(subscriber->keys(), [&](const EntityAnnouncement& publisher) {
        matches.push_back({subscriber, publisher});
      });
    }
    connect_matches(matches, touched);
    follow_nodes(std::move(touched));
  }
  look(DiscoveryTurn::whole());
  return {};
}

void NodeCore::unfollow(const Follower& subscriber, EntityAnnouncement said) {
  {
    const Lock looking(looking_);
    const Lock lock(mutex_);
    if (!interest_.subscribers.remove(subscriber.entity(), subscriber.keys())) return;
    known_.publishers().each_of(subscriber.keys(), [&](const EntityAnnouncement& publisher) {
      looking_.assert_held();
      mutex_.assert_held();
      interest_.wants.remove(id_of(publisher), subscriber.entity());
      to_follow_.insert(publisher.context);  // the next look knows
    });
  }
  discovery_.unfollow(EntityKind::publisher, subscriber.keys());
  withdraw(std::move(said));
  fabric_->dialler()->drop_all(prefix_of(subscriber.entity()));
}

Result<void> NodeCore::begin_call(const KeyExpression& key) {
  {
    const Lock lock(mutex_);
    const bool is_new = !interest_.called.has(key);
    interest_.called.begin(key);
    if (!is_new) return {};
    known_.responders().each_of(key, [&](const EntityAnnouncement& responder) {
      mutex_.assert_held();
      interest_.called.count(responder.context);
    });
  }
  if (auto followed = discovery_.follow(EntityKind::responder, key); !followed) {
    const Lock lock(mutex_);
    interest_.called.end(key);
    if (interest_.called.forget_unused(key)) {
      known_.responders().each_of(key, [&](const EntityAnnouncement& responder) {
        mutex_.assert_held();
        interest_.called.discount(responder.context);
      });
    }
    return followed;
  }
  look(DiscoveryTurn::whole());
  return {};
}

void NodeCore::end_call(const KeyExpression& key) {
  std::vector<KeyExpression> unused;
  {
    const Lock lock(mutex_);
    interest_.called.end(key);
    unused = interest_.called.take_unused(kMostCalledKeys);
    for (const KeyExpression& one : unused) {
      known_.responders().each_of(one, [&](const EntityAnnouncement& responder) {
        mutex_.assert_held();
        interest_.called.discount(responder.context);
      });
    }
  }
  for (const KeyExpression& one : unused) discovery_.unfollow(EntityKind::responder, one);
}

std::vector<EntityAnnouncement> NodeCore::responders_of(const KeyExpression& key) const {
  std::vector<EntityAnnouncement> found;
  const Lock lock(mutex_);
  known_.responders().each_of(
      key, [&](const EntityAnnouncement& responder) { found.push_back(responder); });
  return found;
}

// Announcements of others

void NodeCore::look(const DiscoveryTurn& turn) {
  bool has_more = false;
  do {
    const Lock looking(looking_);  // released between them for others: whole() may take long
    has_more = look_at_some();
  } while (has_more && !turn.is_over());
  {
    const auto links = context()->links().all();
    const Lock lock(mutex_);
    note_names(*links);
  }
  tell_of_troubles();
  context()->wake_others();
  if (!has_more) return;
  context()->schedule([weak = weak_from_this()] {
    if (const auto node = weak.lock()) node->look(DiscoveryTurn::begin());
  });
}

bool NodeCore::look_at_some() {
  const auto taken = discovery_.take(DiscoveryTurn::kAtOnce);
  Found found;
  {
    const Lock lock(mutex_);
    if (closed_) return false;
    found = note(taken);
  }
  looks_.fetch_add(1);
  tell_of_routers();
  tell_of_twins(found.name_counts);
  tell_of_undiscoverable(found.gone_nodes);
  for (const auto& [publisher, subscriber] : found.gone)
    fabric_->dialler()->drop(target_of(subscriber, publisher));
  connect_matches(found.matches, found.touched);
  for (const Match& match : found.to_want) want(match.subscriber, match.publisher);
  follow_nodes(std::move(found.touched));
  return !taken.empty();
}

NodeCore::Found NodeCore::note(const std::vector<ChangedKey>& taken) {
  Found found;
  KnownPeers::Changes changes;
  for (const ChangedKey& changed : taken) known_.apply(changed, changes);
  for (const auto& [change, entity] : changes.entities) note_entity(change, entity, found);
  for (const std::string& name : changes.names) found.name_counts[name] = known_.count_of(name);
  for (auto& [context, name] : changes.had_nodes)
    if (!known_.has_node(context)) found.gone_nodes.emplace(context, std::move(name));
  for (const ContextId& context : changes.contexts) {
    if (!known_.has_node(context)) continue;
    for (const auto& [id, number] : interest_.wants.take_waiting(context)) {
      const EntityAnnouncement* const publisher = known_.publishers().find(id);
      auto subscriber = interest_.subscribers.find(number);
      if (publisher != nullptr && subscriber != nullptr)
        found.to_want.push_back({std::move(subscriber), *publisher});
    }
  }
  found.touched.merge(interest_.called.take_changed());
  return found;
}

void NodeCore::note_entity(KeyChange change, const EntityAnnouncement& entity, Found& found) {
  if (entity.kind == EntityKind::responder) {
    if (!interest_.called.has(entity.topic)) return;
    if (change == KeyChange::came)
      interest_.called.count(entity.context);
    else
      interest_.called.discount(entity.context);
    return;
  }
  if (change == KeyChange::came) {
    for (auto& subscriber : interest_.subscribers.takers(entity.topic))
      found.matches.push_back({std::move(subscriber), entity});
    return;
  }
  for (const std::uint32_t subscriber : interest_.wants.remove(id_of(entity))) {
    found.gone.emplace_back(id_of(entity), subscriber);
    found.touched.insert(entity.context);
  }
}

void NodeCore::connect_matches(const std::vector<Match>& matches, std::set<ContextId>& touched) {
  for (const Match& match : matches) {
    const EntityAnnouncement& publisher = match.publisher;
    if (!match.subscriber->takes(publisher)) continue;
    touched.insert(publisher.context);
    const PublisherId id = id_of(publisher);
    const std::uint32_t subscriber = match.subscriber->entity();
    {
      const Lock lock(mutex_);
      const EntityAnnouncement* const said = known_.publishers().find(id);
      if (said == nullptr || *said != publisher) continue;  // it was withdrawn meanwhile
      if (interest_.subscribers.find(subscriber) == nullptr) continue;
      interest_.wants.add(id, subscriber);
      // Its node is reported later, separately: a dial before that would wait for its turn.
      if (!known_.has_node(id.context)) {
        interest_.wants.wait_for_node({id, subscriber});
        continue;
      }
    }
    want(match.subscriber, publisher);
  }
}

// Contexts that were reached stay followed, so that their end is reported.
void NodeCore::follow_nodes(std::set<ContextId> touched) {
  touched.merge(to_follow_);
  to_follow_.clear();
  for (const ContextId& context : touched) {
    const bool is_wanted = [&] {
      const Lock lock(mutex_);
      return interest_.wants.has(context) || interest_.called.wants(context);
    }();
    if (!is_wanted && !is_connected_to(context)) {
      discovery_.unfollow_nodes_of(context);
      continue;
    }
    const auto followed = discovery_.follow_nodes_of(context);
    if (followed && is_wanted) continue;
    to_follow_.insert(context);  // the next look knows whether it is connected, and tries again
    if (!followed) {
      fabric_->context()->log(
          LogLevel::warn, "node.discovery",
          "the node of " + context.to_string() + " is not followed: " + followed.error().message());
    }
  }
}

bool NodeCore::is_connected_to(const ContextId& context) const {
  OwnSubscribers::Subscribers subscribers;
  {
    const Lock lock(mutex_);
    subscribers = interest_.subscribers.all();
  }
  return std::ranges::any_of(
      subscribers, [&](const auto& subscriber) { return subscriber->is_connected_to(context); });
}

void NodeCore::want(const std::shared_ptr<Follower>& subscriber,
                    const EntityAnnouncement& publisher) {
  const PublisherId id = id_of(publisher);
  const auto addresses = addresses_of(publisher.context);
  if (!addresses) return;  // its node was withdrawn meanwhile
  fabric_->dialler()->want(
      wanted_at(target_of(subscriber->entity(), id), publisher.context, *addresses,
                [weak = weak_from_this(), weak_subscriber = std::weak_ptr(subscriber),
                 id](const Dialler::Dial& dial) {
                  const auto node = weak.lock();
                  const auto known = weak_subscriber.lock();
                  if (node == nullptr || known == nullptr) return Dialler::Outcome::done;
                  const auto said = node->announced(id);
                  return said ? node->connect(known, *said, dial) : Dialler::Outcome::done;
                }));
}

std::optional<EntityAnnouncement> NodeCore::announced(const PublisherId& publisher) const {
  const Lock lock(mutex_);
  const EntityAnnouncement* const said = known_.publishers().find(publisher);
  return said == nullptr ? std::nullopt : std::optional(*said);
}

// Runs on a thread of the Dialler. A publisher whose node is not announced any more is tried again.
Dialler::Outcome NodeCore::connect(const std::shared_ptr<Follower>& subscriber,
                                   const EntityAnnouncement& publisher, const Dialler::Dial& dial) {
  using Outcome = Dialler::Outcome;
  if (subscriber->is_connected({publisher.context, publisher.entity})) return Outcome::done;
  const auto whereabouts = whereabouts_of(publisher.context);
  if (!whereabouts) return Outcome::unreached;
  const Approach approach = reach(publisher.context, whereabouts->addresses, dial);
  if (!approach.link) {
    if (context()->unusable()) return Outcome::done;
    if (approach.next == Approach::Next::other_way) return Outcome::unreached;
    std::vector<DialAttempt> attempts;
    attempts.reserve(approach.tried.size());
    for (const Tried& each : approach.tried)
      attempts.push_back({each.address, each.error.message()});
    tell_unreachable(publisher.context, approach.link.error(), attempts);
    return Outcome::unreached;
  }
  keep_name(publisher.context, whereabouts->name);
  const auto connected = subscriber->connect(publisher, whereabouts->name, *approach.link);
  if (connected) note_reached({publisher.context, publisher.entity});
  if (!connected && connected.error().code == ErrorCode::limit_exceeded)
    tell_left_out(publisher, connected.error());
  const bool is_over = connected.has_value() || connected.error().code == ErrorCode::pipe_closed;
  return is_over ? Outcome::done : Outcome::again;
}

Approach NodeCore::reach(const ContextId& context, const std::vector<std::string>& addresses,
                         const Dialler::Dial& dial) const {
  if (dial.whence == Dialler::Whence::this_host) {
    return {.link = reach_once(*this->context(), context, own_sockets_of(addresses),
                               {fabric_->profile()}, dial.deadline),
            .next = Approach::Next::other_way};
  }
  if (ways_.detours != nullptr) {
    return ways_.detours->reach({.context = context,
                                 .addresses = addresses,
                                 .asker = self_,
                                 .routed = options_.routed ? Routed::yes : Routed::no},
                                dial.deadline);
  }
  auto [link, tried] =
      try_to_reach(*this->context(), context, addresses, {fabric_->profile()}, dial.deadline);
  return {.link = std::move(link), .tried = std::move(tried)};
}

// Reports all publishers of that Context that its subscribers take: the result of one attempt holds
// for each. Once, until it is reached or announced anew.
void NodeCore::tell_unreachable(const ContextId& peer, const Error& error,
                                const std::vector<DialAttempt>& tried) {
  std::vector<EntityAnnouncement> publishers;
  {
    const Lock lock(mutex_);
    for (const PublisherId& id : interest_.wants.tell_all_of(peer))
      if (const auto* publisher = known_.publishers().find(id)) publishers.push_back(*publisher);
  }
  if (publishers.empty()) return;
  std::string reason(kAnnouncedNotReached);
  if (tried.empty()) reason += ": " + error.detail;
  for (const DialAttempt& each : tried) reason += "; " + each.address + ": " + each.error;
  const std::string name = name_of_peer(peer).text;
  for (const EntityAnnouncement& publisher : publishers) {
    tell({.kind = FabricEventKind::unreachable,
          .key = publisher.topic.text(),
          .node = name,
          .reason = reason,
          .tried = tried,
          .entity = publisher.entity});
  }
}

// The link lives, but carries no more channels. Reported once, until it is connected or announced
// anew.
void NodeCore::tell_left_out(const EntityAnnouncement& publisher, const Error& why) {
  {
    const Lock lock(mutex_);
    if (!interest_.wants.tell(id_of(publisher))) return;
  }
  tell({.kind = FabricEventKind::unreachable,
        .key = publisher.topic.text(),
        .node = name_of_peer(publisher.context).text,
        .reason = std::string(kAnnouncedNotConnected) + ": " +
                  std::string(error_info(why.code).name) + ": " + why.detail,
        .entity = publisher.entity});
}

void NodeCore::note_reached(const PublisherId& publisher) {
  const Lock lock(mutex_);
  interest_.wants.note_reached(publisher);
}

void NodeCore::connect_again(const Follower& subscriber, const PublisherId& publisher) {
  fabric_->dialler()->again(target_of(subscriber.entity(), publisher));
}

std::optional<std::vector<std::string>> NodeCore::addresses_of(const ContextId& context) const {
  const Lock lock(mutex_);
  if (!known_.has_node(context)) return std::nullopt;
  return known_.addresses_of(context, fabric_->unix_on());
}

std::optional<NodeWhereabouts> NodeCore::whereabouts_of(const ContextId& context) const {
  const Lock lock(mutex_);
  if (!known_.has_node(context)) return std::nullopt;
  return NodeWhereabouts{name_of(context), known_.addresses_of(context, fabric_->unix_on())};
}

PeerName NodeCore::name_of(const ContextId& context) const {
  if (known_.has_node(context)) return PeerName::announced_as(known_.name_of(context));
  if (const auto kept = names_.find(context); kept != names_.end())
    return PeerName::announced_as(kept->second);
  return PeerName::unknown(context);
}

void NodeCore::keep_name(const ContextId& context, const PeerName& name) {
  const Lock lock(mutex_);
  if (name.announced) names_[context] = name.text;
}

void NodeCore::note_names(const LinkList& links) {
  if (names_.empty()) return;
  std::set<ContextId> linked;
  for (const auto& link : links)
    if (!link->ended()) linked.insert(link->peer().context);
  std::erase_if(names_, [&](const auto& kept) { return !linked.contains(kept.first); });
  for (auto& [context, name] : names_)
    if (known_.has_node(context)) name = known_.name_of(context);
}

PeerName NodeCore::name_of_peer(const ContextId& context) const {
  const Lock lock(mutex_);
  return name_of(context);
}

std::vector<ContextId> NodeCore::contexts() const {
  const Lock lock(mutex_);
  return known_.contexts();
}

std::vector<std::string> NodeCore::nodes() const {
  if (context()->forked()) return {};
  const Lock lock(mutex_);
  return known_.names();
}

Result<PeerStats> NodeCore::peer_stats(const std::string& name) const {
  constexpr std::string_view kHere = "node.peer_stats";
  TENDON_CHECK(context()->usable(kHere));
  std::vector<ContextId> contexts;
  {
    const Lock lock(mutex_);
    contexts = known_.contexts_of(name);
  }
  std::optional<PeerStats> newest;
  for (const ContextId& id : contexts) {
    auto stats = stats_of_peer(*context(), id);
    if (stats && (!newest || stats->incarnation > newest->incarnation)) newest = std::move(stats);
  }
  if (newest) {
    newest->node = name;
    if (ways_.detours != nullptr) {
      newest->stray_frames = ways_.detours->dropped_frames();
      newest->refused_questions = ways_.detours->refused_questions();
    }
    return *std::move(newest);
  }
  if (contexts.empty())
    return Error{ErrorCode::unreachable, kHere,
                 "no node '" + name + "' was found in domain " + options_.domain};
  std::string detail = "there is no link to " + name;
  std::string tried;
  for (const ContextId& id : contexts) {
    if (ways_.detours == nullptr) break;
    for (const Tried& each : ways_.detours->tried_so_far(id))
      tried += "; " + each.address + ": " + each.error.message();
  }
  detail += tried.empty() ? ": neither side has anything of the other's" : " yet" + tried;
  return Error{ErrorCode::unreachable, kHere, std::move(detail)};
}

// Sorted without the lock: a program that calls it again and again would delay all changes.
std::vector<EntityInfo> NodeCore::described(EntitiesOf those) const {
  if (context()->forked()) return {};
  std::vector<EntityInfo> all;
  {
    const Lock lock(mutex_);
    all = known_.described((known_.*those)());
  }
  return in_order(std::move(all));
}

std::vector<EntityInfo> NodeCore::publishers() const { return described(&KnownPeers::publishers); }

std::vector<EntityInfo> NodeCore::subscribers() const {
  return described(&KnownPeers::subscribers);
}

std::vector<EntityInfo> NodeCore::responders() const { return described(&KnownPeers::responders); }

}  // namespace tendon::v0::detail
