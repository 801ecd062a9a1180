// SPDX-License-Identifier: Apache-2.0
// Announcements of nodes and entities, as keys: docs/protocol.md, "Announcements". In Zenoh they
// are liveliness tokens, which routers match by themselves: the topic stands unchanged at the end,
// so "@tendon/brain/pub/*/*/*/*/vision/**" finds the publishers of vision.
//
//   @tendon/<domain>/node/<name>/<context>/<start>/<addresses>
//   @tendon/<domain>/{pub|sub|srv}/<context>/<entity>/<schema>/<qos>/<topic>
//
// Every process that may reach a router can write any of it. So an announcement is a hint: it says
// where a peer may be asked, and the handshake on the link proves which peer answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/context_id.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <tendon/fabric/qos.hpp>
#include <tendon/session/address.hpp>
#include <tendon/tensor/schema.hpp>
#include <variant>
#include <vector>

#include "session/nonce128.hpp"

namespace tendon::v0::detail {

/// The public identification of a host. Equal hashes are a hint that a unix socket may be there.
using BootHash = std::array<std::byte, 8>;
/// The first 8 bytes of SHA-256 over "tendon boot id" and the boot id: only peers that get a hello
/// learn the id itself. Errors: internal.
[[nodiscard]] Result<BootHash> boot_hash(const Nonce128& boot_id);
/// The first 8 bytes of SHA-256 over the domain: names the place where its nodes meet. Errors:
/// internal.
[[nodiscard]] Result<std::array<std::byte, 8>> domain_hash(const std::string& domain);

/// Says that a node exists, and its addresses.
struct NodeAnnouncement {
  std::string domain;
  std::string name;
  ContextId context;        ///< not none
  std::uint64_t start = 0;  ///< as the hello's incarnation [ns]
  /// The host on whose unix socket, named by `context`, the node listens.
  std::optional<BootHash> unix_on;
  /// At most kMaxAnnouncedAddresses, in the order of dialling. Only numbers, because looking up a
  /// stranger's text would be the stranger's question; no scope, which means nothing on another
  /// host; no port 0; not "every interface".
  std::vector<Address> addresses;

  friend bool operator==(const NodeAnnouncement&, const NodeAnnouncement&) = default;
};

enum class EntityKind : std::uint8_t { publisher, subscriber, responder };
[[nodiscard]] consteval std::array<Word<EntityKind>, 3> words_of(EntityKind) {
  using enum EntityKind;
  return {{{publisher, "pub"}, {subscriber, "sub"}, {responder, "srv"}}};
}

/// Says that a node has a publisher, a subscriber or a responder.
struct EntityAnnouncement {
  std::string domain;
  EntityKind kind = EntityKind::publisher;
  ContextId context;  ///< not none
  std::uint32_t entity = 0;
  std::optional<SchemaHash> schema;  ///< empty: any, or not known yet
  Qos qos;
  /// The subscriber also subscribes at Zenoh, for plain peers.
  bool hears_plain = false;
  /// A key for publishers and responders. Its first chunk is not "@tendon", which is ours.
  KeyExpression topic;

  friend bool operator==(const EntityAnnouncement&, const EntityAnnouncement&) = default;
};

using Announcement = std::variant<NodeAnnouncement, EntityAnnouncement>;

/// The key that announces it. Errors: invalid_argument naming the field; limit_exceeded, also when
/// the whole key has more than kMaxKeyBytes or kMaxKeyChunks.
[[nodiscard]] Result<KeyExpression> to_key(const NodeAnnouncement& node);
[[nodiscard]] Result<KeyExpression> to_key(const EntityAnnouncement& entity);

// Patterns to follow. Errors: as those of to_key().
/// All of a domain.
[[nodiscard]] Result<KeyExpression> pattern_of_domain(const std::string& domain);
/// Entities whose topic intersects `topics`.
[[nodiscard]] Result<KeyExpression> pattern_of_entities(const std::string& domain, EntityKind kind,
                                                        const KeyExpression& topics);
/// Subscribers of any domain whose keys intersect `topic`.
[[nodiscard]] Result<KeyExpression> pattern_of_all_subscribers(const KeyExpression& topic);
/// The nodes of a Context.
[[nodiscard]] Result<KeyExpression> pattern_of_nodes(const std::string& domain,
                                                     const ContextId& context);
/// The nodes of a name, which should be one.
[[nodiscard]] Result<KeyExpression> pattern_of_nodes(const std::string& domain,
                                                     const std::string& name);

/// Reads a stranger's key. Each announcement has one key; a qos may have parts that a newer peer
/// added, which are skipped. Errors: protocol_violation naming the field.
[[nodiscard]] Result<Announcement> parse_announcement(std::string_view key);

}  // namespace tendon::v0::detail
