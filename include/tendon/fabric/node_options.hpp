// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tendon/core/formerly.hpp>
#include <tendon/core/words.hpp>
#include <tendon/fabric/qos.hpp>
#include <tendon/session/profile.hpp>
#include <tendon/tensor/schema.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// Whether a node needs a router to join. `background`: it joins without one, which is tried
/// each second until one answers; FabricEventKind::discovery_found says so. A survey, waits
/// for subscribers and calls wait for it within their own deadlines.
enum class DiscoveryNeed : std::uint8_t { required, background };
TENDON_WORDS(DiscoveryNeed, required, background);

struct NodeOptions {
  /// Nodes of one domain find each other. Empty: that of the environment, TENDON_DOMAIN, else
  /// "default".
  std::string domain = {};
  /// Unique in its domain: subscribers know a publisher by it.
  std::string name = {};
  /// Discovery by Zenoh: where its routers listen, "10.0.0.7:7447" or as Zenoh writes it,
  /// "tcp/10.0.0.7:7447": `tendon router` or a zenohd. A node uses one at a time, so they are to be
  /// connected. Each has a try, of a second or its share of the deadline. A router that dies costs
  /// discovery, and no link; the others are tried then. Without routers and without `peers`: those
  /// of the environment, TENDON_ROUTER="HOST:PORT,HOST:PORT"; else nodes of one host and user find
  /// each other by themselves.
  std::vector<std::string> routers = {};
  DiscoveryNeed discovery = DiscoveryNeed::required;
  /// Static discovery: where other nodes listen, "10.0.0.7:7450" or "unix:/run/brain.sock", at most
  /// kMaxStaticPeers. One of two nodes has to name the other. An empty list: found by those alone
  /// that name this one.
  std::optional<std::vector<std::string>> peers = std::nullopt;
  /// Where this node can be reached beside the unix socket for nodes of this host and user; port 0
  /// lets the system choose: see address(). "0.0.0.0:0" and "[::]:0" are every interface: others
  /// are told kMaxAnnouncedAddresses of their addresses; invalid_argument where there is none.
  /// Empty: nowhere.
  std::string listen = {};
  /// With discovery by Zenoh: where neither of two nodes reaches the other, their link may lead
  /// through its routers. It needs plaintext, is slower than any other path, and costs the routers
  /// what it carries. False: such a node is `unreachable`, and no link of this kind is let in for
  /// this one.
  bool routed = true;
  /// Profile::plaintext for links that are not proved to be of this host and user. All nodes of a
  /// Context have the same.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  /// Sets of keys, "sensors/**": subscribers whose keys are all in one of them also hear plain
  /// Zenoh peers, where they say nothing (SubscriberOptions::hears_plain) and have no `max_age`.
  std::vector<std::string> plain_keys = {};
  /// Deprecated: plain_keys.
  Formerly<std::vector<std::string>> plain = {};
};

/// A publisher, a subscriber or a responder, as its node has announced it.
struct EntityInfo {
  std::string key;                   ///< of a subscriber: its set of keys
  std::string node;                  ///< empty while the node itself is not known
  std::optional<SchemaHash> schema;  ///< nothing: any
  Qos qos;                           ///< of a publisher

  friend bool operator==(const EntityInfo&, const EntityInfo&) = default;
};

}  // namespace v0
}  // namespace tendon
