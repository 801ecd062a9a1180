// SPDX-License-Identifier: Apache-2.0
#include "support/node_crowd.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "fabric/keys/announcement.hpp"
#include "support/counting_port.hpp"

namespace tendon::test {

using namespace tendon::detail;
using Counts = Stopwatch::Counts;
using Turn = Stopwatch::Turn;

namespace {

constexpr const char* kDomain = "brain";

KeyExpression key(const std::string& text) { return KeyExpression::parse(text).value(); }

std::string name(std::uint32_t number) { return "n" + std::to_string(number); }

void announce_entity(NodeDiscovery& node, EntityKind kind, std::uint32_t number,
                     std::uint32_t entity, const KeyExpression& topic) {
  const EntityAnnouncement announced{.domain = kDomain,
                                     .kind = kind,
                                     .context = context_id(number),
                                     .entity = entity,
                                     .schema = {},
                                     .qos = {},
                                     .topic = topic};
  node.announce(to_key(announced).value()).value();
}

}  // namespace

ContextId context_id(std::uint32_t number) {
  ContextId id;
  for (std::size_t i = 0; i < sizeof number; ++i)
    id.bytes[i] = static_cast<std::byte>(number >> (8 * i));
  id.bytes.back() = std::byte{1};
  return id;
}

NodeCrowd::NodeCrowd(ZenohNetwork& network, std::uint32_t count) : network_(network) {
  for (std::uint32_t number = 0; number < count; ++number) members_.push_back(start(number, count));
}

NodeCrowd::~NodeCrowd() {
  for (const auto& member : members_) member->node->close();
}

std::unique_ptr<NodeCrowd::Member> NodeCrowd::start(std::uint32_t number, std::uint32_t count) {
  const Turn all(watch_, Counts::yes);
  auto member = std::make_unique<Member>();
  member->way = ZenohDiscovery::create(
                    std::make_unique<CountingPort>(network_.open(), member->events, watch_),
                    [this](std::function<void()> run) {
                      const Turn own(watch_, Counts::no);
                      network_.after(std::chrono::microseconds(0), [this, run = std::move(run)] {
                        const Turn node(watch_, Counts::yes);
                        run();
                      });
                    })
                    .value();
  member->node = std::make_unique<NodeDiscovery>(
      kDomain, std::vector<std::shared_ptr<Discovery>>{member->way});
  NodeDiscovery& node = *member->node;
  node.watch([&node, &known = member->known] {
    KnownPeers::Changes changes;
    for (const ChangedKey& changed : node.take(std::numeric_limits<std::size_t>::max()))
      known.apply(changed, changes);
    for (const auto& [change, entity] : changes.entities)
      if (change == KeyChange::came) node.follow_nodes_of(entity.context).value();
  });
  const NodeAnnouncement self{.domain = kDomain,
                              .name = name(number),
                              .context = context_id(number),
                              .start = 1,
                              .unix_on = {},
                              .addresses = {}};
  node.announce(to_key(self).value()).value();
  node.follow_name(self.name).value();
  const std::string next = name((number + 1) % count);
  for (std::uint32_t topic = 0; topic < kTopics; ++topic) {
    const std::string of = "t" + std::to_string(topic) + '/';
    const KeyExpression wanted = key(of + next);
    announce_entity(node, EntityKind::publisher, number, topic, key(of + self.name));
    node.follow(EntityKind::publisher, wanted).value();
    announce_entity(node, EntityKind::subscriber, number, kTopics + topic, wanted);
  }
  return member;
}

std::size_t NodeCrowd::matched_count() const {
  return static_cast<std::size_t>(
      std::count_if(members_.begin(), members_.end(), [](const auto& member) {
        return member->known.publishers().size() == kTopics + kMatching &&
               member->known.names().size() == 2;
      }));
}

std::size_t NodeCrowd::most_events() const {
  std::size_t most = 0;
  for (const auto& member : members_) most = std::max(most, member->events);
  return most;
}

}  // namespace tendon::test
