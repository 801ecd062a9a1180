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

/// Whether a node needs a router to join. With `background` it joins without one and tries again
/// each second; FabricEventKind::discovery_found reports the first answer. A survey, waits for
/// subscribers and calls wait for it within their own deadlines.
enum class DiscoveryNeed : std::uint8_t { required, background };
TENDON_WORDS(DiscoveryNeed, required, background);

struct NodeOptions {
  /// The domain; nodes of one domain find each other. Empty: TENDON_DOMAIN of the environment, else
  /// "default".
  std::string domain = {};
  /// The name, unique in its domain: subscribers know a publisher by it.
  std::string name = {};
  /// Discovery by Zenoh: the addresses of routers (`tendon router` or a zenohd), as "10.0.0.7:7447"
  /// or in Zenoh's form "tcp/10.0.0.7:7447". A node uses one at a time, so the routers must be
  /// connected. Each has one try, of a second or its share of the deadline. When a router dies,
  /// discovery stops, links stay, and the others are tried. Without routers and without `peers`:
  /// those of the environment, TENDON_ROUTER="HOST:PORT,HOST:PORT"; else nodes of one host and user
  /// find each other by themselves.
  std::vector<std::string> routers = {};
  DiscoveryNeed discovery = DiscoveryNeed::required;
  /// Static discovery: the addresses of other nodes, "10.0.0.7:7450" or "unix:/run/brain.sock", at
  /// most kMaxStaticPeers. One of two nodes has to name the other. With an empty list only nodes
  /// that name this one find it.
  std::optional<std::vector<std::string>> peers = std::nullopt;
  /// The address of this node for other hosts, beside the unix socket for nodes of this host and
  /// user. Port 0 lets the system choose: see address(). "0.0.0.0:0" and "[::]:0" are every
  /// interface: kMaxAnnouncedAddresses of their addresses are announced; invalid_argument where
  /// there is none. Empty: none.
  std::string listen = {};
  /// With discovery by Zenoh: whether links may lead through its routers if neither of two nodes
  /// reaches the other. Such a link needs plaintext, is slower than any other path, and costs the
  /// routers its traffic. False: such a node is `unreachable`, and this node accepts no link of
  /// this kind.
  bool routed = true;
  /// The protection of links that are not proved to be of this host and user: Profile::plaintext.
  /// All nodes of a Context have the same.
  Security security = {};
  /// Deprecated: security.profile.
  Formerly<Profile> profile = {};
  /// Sets of keys, "sensors/**". A subscriber whose keys all lie in one of them also hears plain
  /// Zenoh peers, unless it sets SubscriberOptions::hears_plain or has a `max_age`.
  std::vector<std::string> plain_keys = {};
  /// Deprecated: plain_keys.
  Formerly<std::vector<std::string>> plain = {};
};

/// A publisher, a subscriber or a responder, as its node has announced it.
struct EntityInfo {
  std::string key;                   ///< for a subscriber: its set of keys
  std::string node;                  ///< empty while the node itself is not known
  std::optional<SchemaHash> schema;  ///< empty: any
  Qos qos;                           ///< of a publisher

  friend bool operator==(const EntityInfo&, const EntityInfo&) = default;
};

}  // namespace v0
}  // namespace tendon
