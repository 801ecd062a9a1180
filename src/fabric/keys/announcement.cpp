// SPDX-License-Identifier: Apache-2.0
#include "fabric/keys/announcement.hpp"

#include <arpa/inet.h>
#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "core/text.hpp"
#include "fabric/keys/name_chunk.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "fabric.announcement";
constexpr std::string_view kNode = "node";
constexpr std::string_view kAnySchema = "any";
constexpr std::string_view kNoAddress = "none";
constexpr std::string_view kUnixOn = "unix=";

Error invalid(std::string detail) {
  return Error{ErrorCode::invalid_argument, kWhere, std::move(detail)};
}
Error bad_field(std::string_view field, std::string_view value, std::string_view legal) {
  return invalid("the field '" + std::string(field) + "' is " + quote_text(value) +
                 "; legal: " + std::string(legal));
}

// ---- rules for written and read keys

Result<void> check_address(const Address& address) {
  const auto refused = [&](std::string_view why) {
    return invalid("the address " + quote_text(address.to_string()) + " " + std::string(why));
  };
  in6_addr six{};
  in_addr four{};
  if (address.kind() != AddressKind::ip) {
    return refused("is of a unix socket, which others find by the Context");
  }
  if (inet_pton(AF_INET6, address.host().c_str(), &six) == 1) {
    if (std::memcmp(&six, &in6addr_any, sizeof six) == 0) return refused("is every interface");
  } else if (inet_pton(AF_INET, address.host().c_str(), &four) == 1) {
    if (four.s_addr == INADDR_ANY) return refused("is every interface");
  } else {
    return refused("is no number: names and scopes mean nothing on another host");
  }
  if (address.port() == 0) return refused("has port 0, where nobody can be reached");
  return {};
}

Result<void> check(const NodeAnnouncement& node) {
  if (node.context.is_none()) return invalid("the Context of a node is none");
  if (node.addresses.size() > kMaxAnnouncedAddresses) {
    return Error{ErrorCode::limit_exceeded, kWhere,
                 std::to_string(node.addresses.size()) + " addresses of one node; legal: 0-" +
                     std::to_string(kMaxAnnouncedAddresses)};
  }
  for (const Address& address : node.addresses) TENDON_CHECK(check_address(address));
  return {};
}

Result<void> check(const EntityAnnouncement& entity) {
  if (entity.context.is_none()) return invalid("the Context of an entity is none");
  const std::uint32_t samples = entity.qos.history.samples;
  if (samples == 0 || samples > kMaxHistorySamples) {
    return Error{ErrorCode::limit_exceeded, kWhere,
                 "a history of " + std::to_string(samples) + " samples; legal: 1-" +
                     std::to_string(kMaxHistorySamples)};
  }
  const std::string_view topic = entity.topic.text();
  if (topic.substr(0, topic.find('/')) == kOwnChunk) {
    return invalid("the topic " + quote_text(topic) + " begins with '@tendon', which is reserved");
  }
  if (entity.kind != EntityKind::subscriber && !entity.topic.is_key()) {
    return invalid("the topic " + quote_text(topic) +
                   " has wildcards, which only subscribers may ask for");
  }
  return {};
}

// ---- writing

// A letter and a number for each part, in this order.
std::string qos_to_chunk(const EntityAnnouncement& entity) {
  const Qos& qos = entity.qos;
  return "h" + std::to_string(qos.history.samples) + "o" +
         std::to_string(static_cast<int>(qos.overflow)) + "p" +
         std::to_string(static_cast<int>(qos.priority)) + (entity.hears_plain ? "z1" : "");
}

std::string addresses_to_chunk(const NodeAnnouncement& node) {
  std::string chunk;
  if (node.unix_on) chunk = std::string(kUnixOn) + to_hex(*node.unix_on);
  for (const Address& address : node.addresses) {
    if (!chunk.empty()) chunk += ',';
    chunk += address.to_string();
  }
  return chunk.empty() ? std::string(kNoAddress) : chunk;
}

// ---- reading

// The chunks of a key, one after the other.
class Fields {
 public:
  explicit Fields(std::string_view key) : rest_(key) {}
  /// The next chunk; empty when there is none.
  std::string_view take() {
    const std::size_t end = std::min(rest_.find('/'), rest_.size());
    const std::string_view chunk = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return chunk;
  }
  [[nodiscard]] std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// Accepts exactly the digits that to_hex() writes.
template <std::size_t kSize>
std::optional<std::array<std::byte, kSize>> bytes_in(std::string_view text) {
  std::array<std::byte, kSize> bytes{};
  return from_hex(text, bytes) && to_hex(bytes) == text ? std::optional(bytes) : std::nullopt;
}

// Accepts exactly the digits that std::to_string() writes.
template <std::unsigned_integral T>
std::optional<T> from_decimal(std::string_view text) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || std::to_string(value) != text) return std::nullopt;
  return value;
}

Result<ContextId> context_from(std::string_view chunk) {
  const auto bytes = bytes_in<16>(chunk);
  if (!bytes) return bad_field("context", chunk, "32 digits of 0-9 and a-f");
  return ContextId{*bytes};
}

Result<std::array<std::byte, 8>> short_hash(const std::string& input) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  if (EVP_Digest(input.data(), input.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) {
    return Error{ErrorCode::internal, kWhere, "SHA-256 failed"};
  }
  std::array<std::byte, 8> hash;
  std::memcpy(hash.data(), digest.data(), hash.size());
  return hash;
}

Result<void> read_qos(EntityAnnouncement& entity, std::string_view chunk) {
  const Error refused =
      bad_field("qos", chunk,
                "h1-" + std::to_string(kMaxHistorySamples) + "o1-2p1-2, then parts of newer peers");
  constexpr std::string_view kParts = "hop";
  std::array<std::uint32_t, kParts.size()> known{};
  std::size_t count = 0;
  for (std::string_view rest = chunk; !rest.empty(); ++count) {
    const char letter = rest.front();
    const std::size_t end = std::min(rest.find_first_not_of("0123456789", 1), rest.size());
    const auto number = from_decimal<std::uint32_t>(rest.substr(1, end - 1));
    const std::size_t part = kParts.find(letter);
    const bool in_place = count < kParts.size() ? part == count : part == std::string_view::npos;
    if (letter < 'a' || letter > 'z' || !in_place || !number) return refused;
    if (count < kParts.size()) known[count] = *number;
    if (letter == 'z' && entity.kind == EntityKind::subscriber) entity.hears_plain = *number == 1;
    rest.remove_prefix(end);
  }
  const auto overflow = enumerator_from<Overflow>(known[1]);
  const auto priority = enumerator_from<Priority>(known[2]);
  if (!overflow || !priority) return refused;
  entity.qos.history = keep_last(known[0]);
  entity.qos.overflow = *overflow;
  entity.qos.priority = *priority;
  return {};
}

Result<void> read_addresses(NodeAnnouncement& node, std::string_view chunk) {
  if (chunk == kNoAddress) return {};
  for (std::string_view rest = chunk;;) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view one = rest.substr(0, end);
    if (rest.data() == chunk.data() && one.starts_with(kUnixOn)) {
      node.unix_on = bytes_in<8>(one.substr(kUnixOn.size()));
      if (!node.unix_on) return bad_field("addresses", one, "unix= and 16 digits of 0-9 and a-f");
    } else {
      TENDON_TRY(address, Address::parse(one));
      if (address.to_string() != one) {
        return bad_field("addresses", one, quote_text(address.to_string()));
      }
      node.addresses.push_back(std::move(address));
      // Before the next one is read.
      if (node.addresses.size() > kMaxAnnouncedAddresses) return check(node);
    }
    if (end == rest.size()) return {};
    rest.remove_prefix(end + 1);
  }
}

Result<Announcement> read_node(std::string domain, Fields fields) {
  NodeAnnouncement node;
  node.domain = std::move(domain);
  TENDON_TRY(name, name_from_chunk(fields.take()));
  node.name = std::move(name);
  TENDON_TRY(context, context_from(fields.take()));
  node.context = context;
  const std::string_view start = fields.take();
  const auto start_ns = from_decimal<std::uint64_t>(start);
  if (!start_ns) return bad_field("start", start, "0-18446744073709551615");
  node.start = *start_ns;
  TENDON_CHECK(read_addresses(node, fields.take()));
  if (!fields.rest().empty()) return invalid("there is more behind the field 'addresses'");
  TENDON_CHECK(check(node));
  return Announcement(std::move(node));
}

Result<Announcement> read_entity(std::string domain, EntityKind kind, Fields fields) {
  TENDON_TRY(context, context_from(fields.take()));
  const std::string_view number = fields.take();
  const auto entity = from_decimal<std::uint32_t>(number);
  if (!entity) return bad_field("entity", number, "0-4294967295");
  const std::string_view schema = fields.take();
  const auto hash = bytes_in<16>(schema);
  if (!hash && schema != kAnySchema) {
    return bad_field("schema", schema, "'any', or 32 digits of 0-9 and a-f");
  }
  const std::string_view qos = fields.take();
  TENDON_TRY(topic, KeyExpression::parse(fields.rest()));
  EntityAnnouncement read{.domain = std::move(domain),
                          .kind = kind,
                          .context = context,
                          .entity = *entity,
                          .schema = hash ? std::optional(SchemaHash{*hash}) : std::nullopt,
                          .qos = {},
                          .topic = std::move(topic)};
  TENDON_CHECK(read_qos(read, qos));
  TENDON_CHECK(check(read));
  return Announcement(std::move(read));
}

Result<Announcement> read_key(std::string_view key) {
  // The limits first, for everything below.
  TENDON_CHECK(KeyExpression::parse(key));
  Fields fields(key);
  if (const auto first = fields.take(); first != kOwnChunk) {
    return bad_field("prefix", first, kOwnChunk);
  }
  TENDON_TRY(domain, name_from_chunk(fields.take()));
  const std::string_view kind = fields.take();
  if (kind == kNode) return read_node(std::move(domain), fields);
  if (const auto one = parse_word<EntityKind>(kind))
    return read_entity(std::move(domain), *one, fields);
  return bad_field("kind", kind, "node, " + legal_words<EntityKind>());
}

}  // namespace

Result<BootHash> boot_hash(const Nonce128& boot_id) {
  return short_hash("tendon boot id" + std::string(as_text(boot_id)));
}

Result<std::array<std::byte, 8>> domain_hash(const std::string& domain) {
  return short_hash(domain);
}

Result<KeyExpression> to_key(const NodeAnnouncement& node) {
  TENDON_CHECK(check(node));
  TENDON_TRY(domain, name_to_chunk(node.domain));
  TENDON_TRY(name, name_to_chunk(node.name));
  return KeyExpression::parse(std::string(kOwnChunk) + '/' + domain + '/' + std::string(kNode) +
                              '/' + name + '/' + node.context.to_string() + '/' +
                              std::to_string(node.start) + '/' + addresses_to_chunk(node));
}

Result<KeyExpression> to_key(const EntityAnnouncement& entity) {
  TENDON_CHECK(check(entity));
  TENDON_TRY(domain, name_to_chunk(entity.domain));
  const std::string schema =
      entity.schema ? tendon::to_string(*entity.schema) : std::string(kAnySchema);
  return KeyExpression::parse(std::string(kOwnChunk) + '/' + domain + '/' +
                              std::string(word_of(entity.kind)) + '/' + entity.context.to_string() +
                              '/' + std::to_string(entity.entity) + '/' + schema + '/' +
                              qos_to_chunk(entity) + '/' + entity.topic.text());
}

Result<KeyExpression> pattern_of_domain(const std::string& domain) {
  TENDON_TRY(chunk, name_to_chunk(domain));
  return KeyExpression::parse(std::string(kOwnChunk) + '/' + chunk + "/**");
}

Result<KeyExpression> pattern_of_entities(const std::string& domain, EntityKind kind,
                                          const KeyExpression& topics) {
  TENDON_TRY(chunk, name_to_chunk(domain));
  return KeyExpression::parse(std::string(kOwnChunk) + '/' + chunk + '/' +
                              std::string(word_of(kind)) + "/*/*/*/*/" + topics.text());
}

Result<KeyExpression> pattern_of_all_subscribers(const KeyExpression& topic) {
  return KeyExpression::parse(std::string(kOwnChunk) + "/*/" +
                              std::string(word_of(EntityKind::subscriber)) + "/*/*/*/*/" +
                              topic.text());
}

Result<KeyExpression> pattern_of_nodes(const std::string& domain, const ContextId& context) {
  TENDON_TRY(chunk, name_to_chunk(domain));
  return KeyExpression::parse(std::string(kOwnChunk) + '/' + chunk + '/' + std::string(kNode) +
                              "/*/" + context.to_string() + "/*/*");
}

Result<KeyExpression> pattern_of_nodes(const std::string& domain, const std::string& name) {
  TENDON_TRY(chunk, name_to_chunk(domain));
  TENDON_TRY(name_chunk, name_to_chunk(name));
  return KeyExpression::parse(std::string(kOwnChunk) + '/' + chunk + '/' + std::string(kNode) +
                              '/' + name_chunk + "/*/*/*");
}

Result<Announcement> parse_announcement(std::string_view key) {
  return read_key(key).or_else([&](const Error& error) -> Result<Announcement> {
    return Error{ErrorCode::protocol_violation, kWhere,
                 "the announcement " + quote_text(key) + ": " + error.detail};
  });
}

}  // namespace tendon::v0::detail
