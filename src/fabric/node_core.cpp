// SPDX-License-Identifier: Apache-2.0
#include "fabric/node_core.hpp"

#include <algorithm>
#include <sstream>
#include <tendon/observe/log.hpp>
#include <tuple>
#include <utility>

#include "fabric/name_chunk.hpp"
#include "fabric/publisher_core.hpp"
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
  if (!options.peers) {
    return Error{ErrorCode::not_supported, "node.join",
                 "discovery by Zenoh is not in this version: name the addresses of other nodes in "
                 "NodeOptions::peers, or give an empty list to be found by those that name this "
                 "one"};
  }
  TENDON_CHECK(name_to_chunk(options.domain));
  TENDON_CHECK(name_to_chunk(options.name));
  TENDON_TRY(fabric, ContextFabric::of(context, options.profile));
  auto core = std::make_shared<NodeCore>(std::move(fabric), std::move(options));
  if (auto opened = core->open(deadline); !opened) {
    core->close();
    return std::move(opened).error();
  }
  return Node(std::move(core));
}

NodeCore::NodeCore(std::shared_ptr<ContextFabric> fabric, NodeOptions options)
    : fabric_(std::move(fabric)), options_(std::move(options)) {}

Result<void> NodeCore::open(Deadline deadline) {
  NodeAnnouncement self{.domain = options_.domain,
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
    if (is_number) self.addresses.push_back(address);
  }
  TENDON_TRY(key, to_key(self));
  watching_ = fabric_->discovery().watch([weak = weak_from_this()] {
    if (const auto node = weak.lock()) node->look();
  });
  TENDON_CHECK(fabric_->discovery().announce(key.text()));
  announced_ = key.text();
  look();
  for (const std::string& peer : *options_.peers) {
    TENDON_CHECK(Address::parse(peer));
    TENDON_CHECK(fabric_->discovery().add_peer(peer));
  }
  (void)context()->wait(nullptr, deadline, [&] {
    return context()->unusable() ||
           std::ranges::all_of(*options_.peers, [&](const std::string& peer) {
             return fabric_->discovery().has_dialled(peer);
           });
  });
  return context()->usable("node.join");
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
  if (watching_ != 0) fabric_->discovery().unwatch(watching_);
  if (!announced_.empty()) fabric_->discovery().withdraw(announced_);
  if (acceptor_ != nullptr) acceptor_->close();
  for (const auto& subscriber : subscribers) fabric_->dialler().drop_all(prefix_of(*subscriber));
}

// Events

void NodeCore::on_event(std::function<void(const FabricEvent&)> callback) {
  if (!context()->forked()) event_callbacks_.add(std::move(callback));
}

void NodeCore::tell(FabricEvent event) {
  event.when = std::chrono::steady_clock::now();
  std::ostringstream line;
  line << event;
  log(event.kind == FabricEventKind::gap ? LogLevel::info : LogLevel::warn, "node.event",
      line.str());
  if (!event_callbacks_.admit()) return;
  context()->schedule([self = shared_from_this(), event = std::move(event)] {
    self->event_callbacks_.call(event);
  });
}

// Once for each name, until there is one node of it again.
void NodeCore::tell_of_twins(std::map<std::string, std::size_t> counts) {
  std::erase_if(twins_, [&](const std::string& name) { return counts[name] < 2; });
  for (const auto& [name, count] : counts) {
    if (count < 2 || !twins_.insert(name).second) continue;
    tell({.kind = FabricEventKind::duplicate_name,
          .key = {},
          .node = name,
          .reason = std::to_string(count) + " nodes of domain " + options_.domain +
                    " announce this name: subscribers get the samples of each"});
  }
}

// Entities

Result<std::string> NodeCore::key_of(const PublisherCore& publisher) const {
  const PublisherOptions& options = publisher.options();
  EntityAnnouncement said{.domain = options_.domain,
                          .kind = EntityKind::publisher,
                          .context = context()->id(),
                          .entity = publisher.entity(),
                          .schema = {},
                          .qos = {options.history, options.overflow, options.priority},
                          .topic = publisher.key()};
  if (options.schema != nullptr) said.schema = options.schema->hash();
  TENDON_TRY(key, to_key(said));
  return key.text();
}

Result<std::string> NodeCore::key_of(const SubscriberCore& subscriber) const {
  EntityAnnouncement said{.domain = options_.domain,
                          .kind = EntityKind::subscriber,
                          .context = context()->id(),
                          .entity = subscriber.entity(),
                          .schema = {},
                          .qos = {},
                          .topic = subscriber.keys()};
  if (subscriber.options().schema != nullptr) said.schema = subscriber.options().schema->hash();
  TENDON_TRY(key, to_key(said));
  return key.text();
}

Result<void> NodeCore::add(const PublisherCore& publisher) {
  {
    const Lock lock(mutex_);
    if (closed_) return Error{ErrorCode::pipe_closed, "publisher.declare", "the node was closed"};
  }
  TENDON_TRY(key, key_of(publisher));
  return fabric_->discovery().announce(key);
}

void NodeCore::remove(const PublisherCore& publisher) {
  if (const auto key = key_of(publisher)) fabric_->discovery().withdraw(*key);
}

Result<void> NodeCore::add(const std::shared_ptr<SubscriberCore>& subscriber) {
  TENDON_TRY(key, key_of(*subscriber));
  {
    const Lock lock(mutex_);
    if (closed_) return Error{ErrorCode::pipe_closed, "subscriber.declare", "the node was closed"};
    subscribers_[subscriber->entity()] = subscriber;
  }
  TENDON_CHECK(fabric_->discovery().announce(key));
  look();
  return {};
}

void NodeCore::remove(const SubscriberCore& subscriber) {
  {
    const Lock looking(looking_);
    const Lock lock(mutex_);
    subscribers_.erase(subscriber.entity());
  }
  if (const auto key = key_of(subscriber)) fabric_->discovery().withdraw(*key);
  fabric_->dialler().drop_all(prefix_of(subscriber));
}

// What discovery says

void NodeCore::look() {
  const Lock looking(looking_);
  std::map<ContextId, std::vector<NodeAnnouncement>> nodes;
  std::map<PublisherId, EntityAnnouncement> publishers;
  std::map<PublisherId, EntityAnnouncement> announced_subscribers;
  std::map<std::string, std::size_t> name_counts;
  for (const std::string& key : fabric_->discovery().keys()) {
    auto announcement = parse_announcement(key);
    if (!announcement) continue;
    if (auto* node = std::get_if<NodeAnnouncement>(&*announcement)) {
      if (node->domain != options_.domain) continue;
      ++name_counts[node->name];
      nodes[node->context].push_back(std::move(*node));
    } else if (auto* entity = std::get_if<EntityAnnouncement>(&*announcement)) {
      if (entity->domain != options_.domain || entity->kind == EntityKind::responder) continue;
      auto& of_its_kind =
          entity->kind == EntityKind::publisher ? publishers : announced_subscribers;
      of_its_kind.emplace(PublisherId{entity->context, entity->entity}, std::move(*entity));
    }
  }
  std::vector<std::shared_ptr<SubscriberCore>> subscribers;
  std::vector<PublisherId> gone;
  {
    const Lock lock(mutex_);
    if (closed_) return;
    for (const auto& [id, publisher] : publishers_)
      if (!publishers.contains(id)) gone.push_back(id);
    nodes_ = std::move(nodes);
    publishers_ = publishers;
    announced_subscribers_ = std::move(announced_subscribers);
    for (const auto& [entity, weak] : subscribers_)
      if (auto subscriber = weak.lock()) subscribers.push_back(std::move(subscriber));
  }
  tell_of_twins(std::move(name_counts));
  for (const auto& subscriber : subscribers) {
    for (const PublisherId& id : gone) fabric_->dialler().drop(target_of(*subscriber, id));
    for (const auto& [id, publisher] : publishers)
      if (subscriber->takes(publisher)) want(subscriber, publisher);
  }
  context()->wake_others();
}

void NodeCore::want(const std::shared_ptr<SubscriberCore>& subscriber,
                    const EntityAnnouncement& publisher) {
  const PublisherId id{publisher.context, publisher.entity};
  fabric_->dialler().want(target_of(*subscriber, id),
                          [weak = weak_from_this(), weak_subscriber = std::weak_ptr(subscriber),
                           publisher](Deadline deadline) {
                            const auto node = weak.lock();
                            const auto known = weak_subscriber.lock();
                            if (node == nullptr || known == nullptr) return true;
                            return node->connect(known, publisher, deadline);
                          });
}

// On a thread of the Dialler. A publisher whose node is not announced yet is tried again.
bool NodeCore::connect(const std::shared_ptr<SubscriberCore>& subscriber,
                       const EntityAnnouncement& publisher, Deadline deadline) {
  if (subscriber->is_connected({publisher.context, publisher.entity})) return true;
  const auto addresses = addresses_of(publisher.context);
  if (addresses.empty()) return false;
  const auto link = reach(*context(), publisher.context, addresses, fabric_->profile(), deadline);
  if (!link) {
    log(LogLevel::info, "node.connect",
        publisher.topic.text() + " is announced and not reached: " + link.error().message());
    return context()->unusable();
  }
  const auto connected = subscriber->connect(publisher, name_of_peer(publisher.context), *link);
  return connected.has_value() || connected.error().code == ErrorCode::pipe_closed;
}

void NodeCore::connect_again(const SubscriberCore& subscriber, const PublisherId& publisher) {
  fabric_->dialler().again(target_of(subscriber, publisher));
}

// Unix first, where the announcement says that the peer is on this host.
std::vector<std::string> NodeCore::addresses_of(const ContextId& context) const {
  std::vector<std::string> addresses;
  const Lock lock(mutex_);
  const auto found = nodes_.find(context);
  if (found == nodes_.end()) return addresses;
  const auto add = [&](std::string address) {
    if (std::ranges::find(addresses, address) == addresses.end())
      addresses.push_back(std::move(address));
  };
  for (const NodeAnnouncement& node : found->second) {
    if (!node.unix_on || node.unix_on != fabric_->unix_on()) continue;
    if (auto address = ContextFabric::unix_address(context)) add(*std::move(address));
  }
  for (const NodeAnnouncement& node : found->second)
    for (const Address& address : node.addresses) add(address.to_string());
  return addresses;
}

std::string NodeCore::name_of_peer(const ContextId& context) const {
  const Lock lock(mutex_);
  return name_of(context);
}

// Several nodes may share a Context: then the name is that of all of them.
std::string NodeCore::name_of(const ContextId& context) const {
  std::string names;
  if (const auto found = nodes_.find(context); found != nodes_.end())
    for (const NodeAnnouncement& node : found->second)
      names += (names.empty() ? "" : "+") + node.name;
  return names;
}

std::vector<std::string> NodeCore::nodes() const {
  std::vector<std::string> names;
  if (context()->forked()) return names;
  const Lock lock(mutex_);
  for (const auto& [context, nodes] : nodes_)
    for (const NodeAnnouncement& node : nodes) names.push_back(node.name);
  std::ranges::sort(names);
  return names;
}

std::vector<EntityInfo> NodeCore::described(
    const std::map<PublisherId, EntityAnnouncement>& entities) const {
  std::vector<EntityInfo> all;
  all.reserve(entities.size());
  for (const auto& [id, entity] : entities)
    all.push_back({entity.topic.text(), name_of(id.context), entity.schema, entity.qos});
  std::ranges::sort(all, {}, [](const EntityInfo& one) { return std::tie(one.key, one.node); });
  return all;
}

std::vector<EntityInfo> NodeCore::publishers() const {
  if (context()->forked()) return {};
  const Lock lock(mutex_);
  return described(publishers_);
}

std::vector<EntityInfo> NodeCore::subscribers() const {
  if (context()->forked()) return {};
  const Lock lock(mutex_);
  return described(announced_subscribers_);
}

}  // namespace tendon::v0::detail
