// SPDX-License-Identifier: Apache-2.0
#include "fabric/node_core.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "fabric/caller.hpp"
#include "fabric/name_chunk.hpp"
#include "fabric/node_environment.hpp"
#include "fabric/peer_view.hpp"
#include "fabric/publisher_core.hpp"
#include "fabric/responder_core.hpp"
#include "fabric/subscriber_core.hpp"
#include "runtime/reach.hpp"

namespace tendon::v0::detail {
namespace {

std::string prefix_of(const SubscriberCore& subscriber) {
  return "subscriber " + std::to_string(subscriber.entity()) + ' ';
}

std::string target_of(const SubscriberCore& subscriber, const PublisherId& publisher) {
  return prefix_of(subscriber) + publisher.context.to_string() + ' ' +
         std::to_string(publisher.entity);
}

}  // namespace

// Joining and leaving

Result<Node> NodeCore::join(const std::shared_ptr<ContextCore>& context, NodeOptions options,
                            Deadline deadline) {
  TENDON_CHECK(context->usable("node.join"));
  options.domain = domain_or_default(std::move(options.domain));
  TENDON_CHECK(name_to_chunk(options.domain));
  TENDON_CHECK(name_to_chunk(options.name));
  TENDON_TRY(fabric, ContextFabric::of(context, options.profile));
  for (const std::string& keys : options.plain) TENDON_CHECK(KeyExpression::canonize(keys));
  TENDON_TRY(ways, fabric->ways_of(options, deadline));
  if (!options.plain.empty() && ways.zenoh == nullptr) return no_plain_peers("node.join");
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
      zenoh_{std::move(ways.zenoh), std::move(ways.ear)},
      caller_(std::make_shared<Caller>(fabric_)),
      discovery_(options_.domain, std::move(ways.discoveries)),
      detours_(std::move(ways.detours)) {}

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
    // What others cannot dial is not said: a name, a path of this host, or every interface.
    const bool is_number =
        address.kind() == AddressKind::ip && address.host() != "0.0.0.0" && address.host() != "::";
    if (is_number) self_.addresses.push_back(address);
  }
  TENDON_TRY(key, to_key(self_));
  discovery_.watch([weak = weak_from_this()] {
    if (const auto node = weak.lock()) node->look();
  });
  TENDON_CHECK(discovery_.announce(key));
  TENDON_CHECK(discovery_.follow_name(options_.name));
  look();
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
  look();
  if (complete) return {};
  return Error{
      ErrorCode::timeout, "node.survey",
      "discovery has not told all that is there until the deadline; what it told is known"};
}

void NodeCore::close() {
  if (context()->forked()) return;
  std::vector<std::shared_ptr<SubscriberCore>> subscribers;
  {
    const Lock looking(looking_);
    const Lock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    for (const auto& [entity, weak] : subscribers_)
      if (auto subscriber = weak.lock()) subscribers.push_back(std::move(subscriber));
    subscribers_.clear();
  }
  discovery_.close();
  if (acceptor_ != nullptr) acceptor_->close();
  caller_->close();
  for (const auto& subscriber : subscribers) fabric_->dialler().drop_all(prefix_of(*subscriber));
}

// Plain Zenoh peers

Error no_plain_peers(std::string_view where) {
  return Error{
      ErrorCode::not_supported, where,
      "plain Zenoh peers are heard by nodes that are found by Zenoh: join without `peers`, "
      "or name `routers`"};
}

bool NodeCore::hears_plain_peers_on(const KeyExpression& keys) const {
  return std::ranges::any_of(options_.plain, [&](const std::string& text) {
    const auto pattern = KeyExpression::canonize(text);
    return pattern && pattern->includes(keys);
  });
}

Result<bool> NodeCore::has_plain_subscribers(const KeyExpression& keys, Deadline deadline) {
  constexpr std::string_view kHere = "node.has_plain_subscribers";
  TENDON_CHECK(context()->usable(kHere));
  if (zenoh_.port == nullptr) return no_plain_peers(kHere);
  TENDON_TRY(publisher, zenoh_.port->publisher(keys, Audience::other_sessions, [](Matching) {}));
  // A router says what it knows of subscribers before it ends a request that came later.
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
  TENDON_TRY(request, zenoh_.port->get(
                          keys, timeout, [](std::string_view) {}, on_end));
  (void)context()->wait(nullptr, deadline, [&] { return context()->unusable() || asked->over; });
  TENDON_CHECK(context()->usable(kHere));
  if (publisher->matching() == Matching::somebody) return true;
  if (asked->whole) return false;
  return Error{ErrorCode::timeout, kHere,
               "no router said until the deadline who subscribes to " + keys.text()};
}

// Events

void NodeCore::on_event(std::function<void(const FabricEvent&)> callback) {
  if (!context()->forked()) events_.callbacks.add(std::move(callback));
}

void NodeCore::tell(FabricEvent event) {
  event.when = std::chrono::steady_clock::now();
  events_.log.note(event);
  if (!events_.callbacks.admit()) return;
  context()->schedule([self = shared_from_this(), event = std::move(event)] {
    self->events_.callbacks.call(event);
  });
}

// Once for each name, until there is one node of it again.
void NodeCore::tell_of_twins(std::map<std::string, std::size_t> counts) {
  std::erase_if(seen_.twins, [&](const std::string& name) { return counts[name] < 2; });
  for (const auto& [name, count] : counts) {
    if (count < 2 || !seen_.twins.insert(name).second) continue;
    tell(
        {.kind = FabricEventKind::duplicate_name,
         .key = {},
         .node = name,
         .reason = std::to_string(count) + " nodes of domain " + options_.domain +
                   " announce this name: subscribers without newest_only get the samples of each"});
  }
}

// A token is a hint: its loss ends nothing. It may also come before the end of a channel, or be
// back at once because another process serves now: so it has to last.
void NodeCore::tell_of_undiscoverable(const std::map<ContextId, std::string>& gone,
                                      const KnownPeers& known,
                                      const std::set<ContextId>& connected) {
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [context, name] : gone) {
    const auto due = now + kUndiscoverableAfter;
    if (seen_.missing.try_emplace(context, Missing{name, due}).second)
      (void)this->context()->add_timed(Deadline::at(due), weak_from_this());
  }
  std::erase_if(seen_.missing, [&](const auto& entry) {
    const auto& [context, missing] = entry;
    if (known.nodes.contains(context) || !connected.contains(context)) return true;
    if (now < missing.due) return false;
    tell({.kind = FabricEventKind::undiscoverable,
          .key = {},
          .node = missing.name,
          .reason = "discovery tells of it no more, and its link lives: samples go on, and a lost "
                    "link is not dialled until discovery tells of it again"});
    return true;
  });
}

// Entities

Result<KeyExpression> NodeCore::key_of(const PublisherCore& publisher) const {
  const PublisherOptions& options = publisher.options();
  EntityAnnouncement said{.domain = options_.domain,
                          .kind = EntityKind::publisher,
                          .context = context()->id(),
                          .entity = publisher.entity(),
                          .schema = {},
                          .qos = {options.history, options.overflow, options.priority},
                          .topic = publisher.key()};
  if (options.schema != nullptr) said.schema = options.schema->hash();
  return to_key(said);
}

Result<KeyExpression> NodeCore::key_of(const SubscriberCore& subscriber) const {
  EntityAnnouncement said{.domain = options_.domain,
                          .kind = EntityKind::subscriber,
                          .context = context()->id(),
                          .entity = subscriber.entity(),
                          .schema = {},
                          .qos = {},
                          .hears_plain = subscriber.hears_plain_peers(),
                          .topic = subscriber.keys()};
  if (subscriber.options().schema != nullptr) said.schema = subscriber.options().schema->hash();
  return to_key(said);
}

Result<KeyExpression> NodeCore::key_of(const ResponderCore& responder) const {
  return to_key(EntityAnnouncement{.domain = options_.domain,
                                   .kind = EntityKind::responder,
                                   .context = context()->id(),
                                   .entity = responder.entity(),
                                   .schema = {},
                                   .qos = {},
                                   .topic = responder.key()});
}

Result<void> NodeCore::add(const PublisherCore& publisher) {
  {
    const Lock lock(mutex_);
    if (closed_) return Error{ErrorCode::pipe_closed, "publisher.declare", "the node was closed"};
  }
  TENDON_TRY(key, key_of(publisher));
  return discovery_.announce(key);
}

void NodeCore::remove(const PublisherCore& publisher) {
  if (const auto key = key_of(publisher)) discovery_.withdraw(*key);
}

Result<void> NodeCore::add(const std::shared_ptr<SubscriberCore>& subscriber) {
  TENDON_TRY(key, key_of(*subscriber));
  {
    const Lock lock(mutex_);
    if (closed_) return Error{ErrorCode::pipe_closed, "subscriber.declare", "the node was closed"};
    subscribers_[subscriber->entity()] = subscriber;
  }
  TENDON_CHECK(discovery_.follow(EntityKind::publisher, subscriber->keys()));
  TENDON_CHECK(discovery_.announce(key));
  look();
  return {};
}

void NodeCore::remove(const SubscriberCore& subscriber) {
  {
    const Lock looking(looking_);
    const Lock lock(mutex_);
    if (subscribers_.erase(subscriber.entity()) == 0) return;
  }
  discovery_.unfollow(EntityKind::publisher, subscriber.keys());
  if (const auto key = key_of(subscriber)) discovery_.withdraw(*key);
  fabric_->dialler().drop_all(prefix_of(subscriber));
}

Result<void> NodeCore::add(const ResponderCore& responder) {
  {
    const Lock lock(mutex_);
    if (closed_) return Error{ErrorCode::pipe_closed, "responder.declare", "the node was closed"};
  }
  TENDON_TRY(key, key_of(responder));
  return discovery_.announce(key);
}

void NodeCore::remove(const ResponderCore& responder) {
  if (const auto key = key_of(responder)) discovery_.withdraw(*key);
}

Result<void> NodeCore::begin_call(const KeyExpression& key) {
  {
    const Lock lock(mutex_);
    const auto [called, is_new] = called_.try_emplace(key, 0);
    ++called->second;
    if (!is_new) return {};
  }
  if (auto followed = discovery_.follow(EntityKind::responder, key); !followed) {
    const Lock lock(mutex_);
    if (--called_[key] == 0) called_.erase(key);
    return followed;
  }
  look();
  return {};
}

void NodeCore::end_call(const KeyExpression& key) {
  std::vector<KeyExpression> unused;
  {
    const Lock lock(mutex_);
    if (const auto called = called_.find(key); called != called_.end()) --called->second;
    if (called_.size() <= kMostCalledKeys) return;
    std::erase_if(called_, [&](const auto& called) {
      if (called.second != 0) return false;
      unused.push_back(called.first);
      return true;
    });
  }
  for (const KeyExpression& one : unused) discovery_.unfollow(EntityKind::responder, one);
}

std::vector<EntityAnnouncement> NodeCore::responders_of(const KeyExpression& key) const {
  std::vector<EntityAnnouncement> found;
  const Lock lock(mutex_);
  for (const auto& [id, responder] : known_.responders)
    if (responder.topic == key) found.push_back(responder);
  return found;
}

// What discovery says

void NodeCore::look() {
  const Lock looking(looking_);
  KnownPeers known = KnownPeers::read(discovery_.keys(), options_.domain);
  std::vector<std::shared_ptr<SubscriberCore>> subscribers;
  std::vector<PublisherId> gone;
  std::map<ContextId, std::string> gone_nodes;
  std::map<KeyExpression, std::size_t> called;
  const auto links = context()->links().all();
  {
    const Lock lock(mutex_);
    if (closed_) return;
    called = called_;
    for (const auto& [id, publisher] : known_.publishers)
      if (!known.publishers.contains(id)) gone.push_back(id);
    for (const PublisherId& id : gone) unreachable_.erase(id);
    for (const auto& [id, nodes] : known_.nodes)
      if (!known.nodes.contains(id)) gone_nodes.emplace(id, known_.name_of(id));
    known_ = known;
    note_names(*links);
    for (const auto& [entity, weak] : subscribers_)
      if (auto subscriber = weak.lock()) subscribers.push_back(std::move(subscriber));
  }
  looks_.fetch_add(1);
  tell_of_twins(known.name_counts());
  std::set<ContextId> contexts;
  for (const auto& subscriber : subscribers) subscriber->add_connected_to(contexts);
  tell_of_undiscoverable(gone_nodes, known, contexts);
  for (const auto& subscriber : subscribers) {
    for (const PublisherId& id : gone) fabric_->dialler().drop(target_of(*subscriber, id));
    for (const auto& [id, publisher] : known.publishers) {
      if (!subscriber->takes(publisher)) continue;
      contexts.insert(id.context);
      // Its node is told of later, by itself: one that is dialled before would wait for its turn.
      if (known.nodes.contains(id.context)) want(subscriber, publisher);
    }
  }
  for (const auto& [id, responder] : known.responders)
    if (called.contains(responder.topic)) contexts.insert(id.context);
  // What is reached stays followed, so that its end is told.
  discovery_.follow_nodes_of(contexts);
  context()->wake_others();
}

void NodeCore::want(const std::shared_ptr<SubscriberCore>& subscriber,
                    const EntityAnnouncement& publisher) {
  const PublisherId id{publisher.context, publisher.entity};
  fabric_->dialler().want(target_of(*subscriber, id), publisher.context.to_string(),
                          [weak = weak_from_this(), weak_subscriber = std::weak_ptr(subscriber),
                           publisher](Deadline deadline) {
                            const auto node = weak.lock();
                            const auto known = weak_subscriber.lock();
                            if (node == nullptr || known == nullptr) return true;
                            return node->connect(known, publisher, deadline);
                          });
}

// On a thread of the Dialler. A publisher whose node is not announced any more is tried again.
bool NodeCore::connect(const std::shared_ptr<SubscriberCore>& subscriber,
                       const EntityAnnouncement& publisher, Deadline deadline) {
  if (subscriber->is_connected({publisher.context, publisher.entity})) return true;
  const auto whereabouts = whereabouts_of(publisher.context);
  if (!whereabouts) return false;
  const Approach approach = reach(publisher.context, whereabouts->addresses, deadline);
  if (!approach.link) {
    if (context()->unusable()) return true;
    if (approach.next == Approach::Next::other_way) return false;
    std::vector<DialAttempt> attempts;
    attempts.reserve(approach.tried.size());
    for (const Tried& each : approach.tried)
      attempts.push_back({each.address, each.error.message()});
    tell_unreachable(publisher.context, approach.link.error(), attempts);
    return false;
  }
  keep_name(publisher.context, whereabouts->name);
  const auto connected = subscriber->connect(publisher, whereabouts->name, *approach.link);
  if (connected) note_reached({publisher.context, publisher.entity});
  return connected.has_value() || connected.error().code == ErrorCode::pipe_closed;
}

Approach NodeCore::reach(const ContextId& context, const std::vector<std::string>& addresses,
                         Deadline deadline) const {
  if (detours_ != nullptr) {
    return detours_->reach({.context = context,
                            .addresses = addresses,
                            .asker = self_,
                            .routed = options_.routed ? Routed::yes : Routed::no},
                           deadline);
  }
  auto [link, tried] =
      try_to_reach(*this->context(), context, addresses, fabric_->profile(), deadline);
  return {.link = std::move(link), .tried = std::move(tried)};
}

// All that its subscribers take of that Context: what one attempt finds is true of each. Once,
// until it is reached or announced anew.
void NodeCore::tell_unreachable(const ContextId& peer, const Error& error,
                                const std::vector<DialAttempt>& tried) {
  std::vector<std::shared_ptr<SubscriberCore>> subscribers;
  std::vector<EntityAnnouncement> publishers;
  {
    const Lock lock(mutex_);
    for (const auto& [entity, weak] : subscribers_)
      if (auto subscriber = weak.lock()) subscribers.push_back(std::move(subscriber));
    for (const auto& [id, publisher] : known_.publishers)
      if (id.context == peer && !unreachable_.contains(id)) publishers.push_back(publisher);
  }
  std::erase_if(publishers, [&](const EntityAnnouncement& publisher) {
    return std::ranges::none_of(
        subscribers, [&](const auto& subscriber) { return subscriber->takes(publisher); });
  });
  std::string reason(kAnnouncedNotReached);
  if (tried.empty()) reason += ": " + error.detail;
  for (const DialAttempt& each : tried) reason += "; " + each.address + ": " + each.error;
  const std::string name = name_of_peer(peer).text;
  for (const EntityAnnouncement& publisher : publishers) {
    const PublisherId id{publisher.context, publisher.entity};
    {
      const Lock lock(mutex_);
      if (!known_.publishers.contains(id) || !unreachable_.insert(id).second) continue;
    }
    tell({.kind = FabricEventKind::unreachable,
          .key = publisher.topic.text(),
          .node = name,
          .reason = reason,
          .tried = tried,
          .entity = publisher.entity});
  }
}

void NodeCore::note_reached(const PublisherId& publisher) {
  const Lock lock(mutex_);
  unreachable_.erase(publisher);
}

void NodeCore::connect_again(const SubscriberCore& subscriber, const PublisherId& publisher) {
  fabric_->dialler().again(target_of(subscriber, publisher));
}

std::optional<std::vector<std::string>> NodeCore::addresses_of(const ContextId& context) const {
  const Lock lock(mutex_);
  if (!known_.nodes.contains(context)) return std::nullopt;
  return known_.addresses_of(context, fabric_->unix_on());
}

std::optional<NodeCore::Whereabouts> NodeCore::whereabouts_of(const ContextId& context) const {
  const Lock lock(mutex_);
  if (!known_.nodes.contains(context)) return std::nullopt;
  return Whereabouts{name_of(context), known_.addresses_of(context, fabric_->unix_on())};
}

PeerName NodeCore::name_of(const ContextId& context) const {
  if (known_.nodes.contains(context)) return PeerName::announced_as(known_.name_of(context));
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
    if (known_.nodes.contains(context)) name = known_.name_of(context);
}

PeerName NodeCore::name_of_peer(const ContextId& context) const {
  const Lock lock(mutex_);
  return name_of(context);
}

std::vector<ContextId> NodeCore::contexts() const {
  std::vector<ContextId> contexts;
  const Lock lock(mutex_);
  for (const auto& [context, nodes] : known_.nodes) contexts.push_back(context);
  return contexts;
}

std::vector<std::string> NodeCore::nodes() const {
  std::vector<std::string> names;
  if (context()->forked()) return names;
  const Lock lock(mutex_);
  for (const auto& [context, nodes] : known_.nodes)
    for (const NodeAnnouncement& node : nodes) names.push_back(node.name);
  std::ranges::sort(names);
  return names;
}

Result<PeerStats> NodeCore::peer_stats(const std::string& name) const {
  constexpr std::string_view kHere = "node.peer_stats";
  TENDON_CHECK(context()->usable(kHere));
  std::vector<ContextId> contexts;
  {
    const Lock lock(mutex_);
    for (const auto& [id, nodes] : known_.nodes)
      if (std::ranges::find(nodes, name, &NodeAnnouncement::name) != nodes.end())
        contexts.push_back(id);
  }
  std::optional<PeerStats> newest;
  for (const ContextId& id : contexts) {
    auto stats = stats_of_peer(*context(), id);
    if (stats && (!newest || stats->incarnation > newest->incarnation)) newest = std::move(stats);
  }
  if (newest) {
    newest->node = name;
    if (detours_ != nullptr) newest->stray_frames = detours_->dropped_frames();
    return *std::move(newest);
  }
  if (contexts.empty())
    return Error{ErrorCode::unreachable, kHere,
                 "no node '" + name + "' was found in domain " + options_.domain};
  std::string detail = "there is no link to " + name;
  std::string tried;
  for (const ContextId& id : contexts) {
    if (detours_ == nullptr) break;
    for (const Tried& each : detours_->tried_so_far(id))
      tried += "; " + each.address + ": " + each.error.message();
  }
  detail += tried.empty() ? ": neither side has anything of the other's" : " yet" + tried;
  return Error{ErrorCode::unreachable, kHere, std::move(detail)};
}

std::vector<EntityInfo> NodeCore::publishers() const {
  if (context()->forked()) return {};
  const Lock lock(mutex_);
  return known_.described(known_.publishers);
}

std::vector<EntityInfo> NodeCore::subscribers() const {
  if (context()->forked()) return {};
  const Lock lock(mutex_);
  return known_.described(known_.subscribers);
}

std::vector<EntityInfo> NodeCore::responders() const {
  if (context()->forked()) return {};
  const Lock lock(mutex_);
  return known_.described(known_.responders);
}

}  // namespace tendon::v0::detail
