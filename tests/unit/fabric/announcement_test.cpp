// SPDX-License-Identifier: Apache-2.0
#include "fabric/keys/announcement.hpp"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "support/expect.hpp"

namespace {

using namespace tendon::detail;
using tendon::Address;
using tendon::ContextId;
using tendon::ErrorCode;
using tendon::keep_last;
using tendon::KeyExpression;
using tendon::kMaxHistorySamples;
using tendon::kMaxKeyBytes;
using tendon::Overflow;
using tendon::Priority;
using tendon::SchemaHash;
using tendon::test::fails_with;
using tendon::test::succeeds;

constexpr const char* kContext = "000102030405060708090a0b0c0d0e0f";
constexpr const char* kSchema = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";

template <class Array>
Array counting_from(int first) {
  Array bytes{};
  for (auto& byte : bytes) byte = static_cast<std::byte>(first++);
  return bytes;
}

KeyExpression key(std::string_view text) { return KeyExpression::parse(text).value(); }
Address address(std::string_view text) { return Address::parse(text).value(); }

NodeAnnouncement vision() {
  NodeAnnouncement node;
  node.domain = "brain";
  node.name = "vision";
  node.context = ContextId{counting_from<decltype(ContextId::bytes)>(0)};
  node.start = 1764000000123456789;
  node.unix_on = counting_from<BootHash>(0xa0);
  node.addresses = {address("10.0.0.5:7000"), address("[fd00::5]:7001")};
  return node;
}

EntityAnnouncement objects() {
  return {.domain = "brain",
          .kind = EntityKind::publisher,
          .context = vision().context,
          .entity = 7,
          .schema = SchemaHash{counting_from<decltype(SchemaHash::bytes)>(0xf0)},
          .qos = {},
          .topic = key("vision/objects")};
}

std::string text_of(const auto& announcement) {
  const KeyExpression whole = to_key(announcement).value();
  return whole.text();
}

template <class T>
void expect_round_trip(const T& announcement) {
  const auto read = parse_announcement(text_of(announcement));
  ASSERT_TRUE(succeeds(read));
  ASSERT_TRUE(std::holds_alternative<T>(*read));
  EXPECT_EQ(std::get<T>(*read), announcement);
}

// Other versions read these keys on the wire: they must stay as this version writes them.
TEST(Announcement, OfANodeHasGoldenKeys) {
  NodeAnnouncement node = vision();
  const std::string begin = std::string("@tendon/brain/node/vision/") + kContext;
  EXPECT_EQ(text_of(node), begin +
                               "/1764000000123456789/unix=a0a1a2a3a4a5a6a7,10.0.0.5:7000,"
                               "[fd00::5]:7001");
  expect_round_trip(node);
  node.unix_on.reset();
  EXPECT_EQ(text_of(node), begin + "/1764000000123456789/10.0.0.5:7000,[fd00::5]:7001");
  expect_round_trip(node);
  node.addresses.clear();
  node.start = 0;
  EXPECT_EQ(text_of(node), begin + "/0/none");
  expect_round_trip(node);
  node.unix_on = BootHash{};
  EXPECT_EQ(text_of(node), begin + "/0/unix=0000000000000000");
  expect_round_trip(node);
  node.domain = "@1/2";
  node.name = "a*b";
  EXPECT_EQ(text_of(node),
            std::string("@tendon/%401%2F2/node/a%2Ab/") + kContext + "/0/unix=0000000000000000");
  expect_round_trip(node);
}

TEST(Announcement, OfAnEntityHasGoldenKeys) {
  EntityAnnouncement entity = objects();
  const std::string middle = std::string("/") + kContext + "/7/";
  EXPECT_EQ(text_of(entity), "@tendon/brain/pub" + middle + kSchema + "/h1o1p1/vision/objects");
  expect_round_trip(entity);
  entity.kind = EntityKind::subscriber;
  entity.schema.reset();
  entity.topic = key("**/objects/@raw/$*x");
  EXPECT_EQ(text_of(entity), "@tendon/brain/sub" + middle + "any/h1o1p1/**/objects/@raw/$*x");
  expect_round_trip(entity);
  entity.hears_plain = true;
  EXPECT_EQ(text_of(entity), "@tendon/brain/sub" + middle + "any/h1o1p1z1/**/objects/@raw/$*x");
  expect_round_trip(entity);
  entity.hears_plain = false;
  entity.kind = EntityKind::responder;
  entity.topic = key("motor");
  entity.qos = {keep_last(kMaxHistorySamples), Overflow::block, Priority::control};
  EXPECT_EQ(text_of(entity), "@tendon/brain/srv" + middle + "any/h65536o2p2/motor");
  expect_round_trip(entity);
}

TEST(Announcement, IsFoundByWhatItsTopicMatches) {
  const KeyExpression of_vision = key("@tendon/brain/pub/*/*/*/*/vision/**");
  EXPECT_TRUE(of_vision.intersects(to_key(objects()).value()));
  EntityAnnouncement other = objects();
  other.topic = key("motor/objects");
  EXPECT_FALSE(of_vision.intersects(to_key(other).value()));
  other = objects();
  other.domain = "brain 2";
  EXPECT_FALSE(of_vision.intersects(to_key(other).value()));
  other = objects();
  other.kind = EntityKind::subscriber;
  other.topic = key("**");
  EXPECT_FALSE(of_vision.intersects(to_key(other).value()));
  EXPECT_TRUE(key("@tendon/brain/sub/*/*/*/*/vision/objects").intersects(to_key(other).value()));
  EXPECT_TRUE(
      pattern_of_all_subscribers(key("vision/objects")).value().intersects(to_key(other).value()));
  EXPECT_FALSE(
      pattern_of_all_subscribers(key("vision")).value().intersects(to_key(objects()).value()));
  EXPECT_TRUE(key("@tendon/*/node/vi$*/*/*/*").intersects(to_key(vision()).value()));
  // A subscriber to everything does not receive them.
  EXPECT_FALSE(key("**").intersects(to_key(vision()).value()));
}

TEST(Announcement, IsRefusedBeforeItIsMade) {
  NodeAnnouncement node = vision();
  node.context = {};
  EXPECT_TRUE(fails_with(to_key(node), ErrorCode::invalid_argument, "Context of a node is none"));
  node = vision();
  node.name = "";
  EXPECT_TRUE(fails_with(to_key(node), ErrorCode::invalid_argument, "the name '' is empty"));
  node = vision();
  node.domain = "a\n";
  EXPECT_TRUE(fails_with(to_key(node), ErrorCode::invalid_argument, "hidden characters"));
  struct Case {
    const char* address;
    const char* why;
  };
  for (const Case& one :
       {Case{"unix:/run/x", "unix socket"}, Case{"host.name:7000", "no number"},
        Case{"[fe80::1%eth0]:7000", "no number"}, Case{"0.0.0.0:7000", "every interface"},
        Case{"[::]:7000", "every interface"}, Case{"10.0.0.5:0", "port 0"}}) {
    node = vision();
    node.addresses.push_back(address(one.address));
    EXPECT_TRUE(fails_with(to_key(node), ErrorCode::invalid_argument, one.why)) << one.address;
  }

  EntityAnnouncement entity = objects();
  entity.context = {};
  EXPECT_TRUE(fails_with(to_key(entity), ErrorCode::invalid_argument, "of an entity is none"));
  for (const EntityKind kind : {EntityKind::publisher, EntityKind::responder}) {
    entity = objects();
    entity.kind = kind;
    entity.topic = key("vision/*");
    EXPECT_TRUE(fails_with(to_key(entity), ErrorCode::invalid_argument, "only subscribers"));
  }
  for (const char* topic : {"@tendon", "@tendon/brain/cable", "@tendon/**"}) {
    entity = objects();
    entity.kind = EntityKind::subscriber;
    entity.topic = key(topic);
    EXPECT_TRUE(fails_with(to_key(entity), ErrorCode::invalid_argument, "reserved")) << topic;
  }
  entity.topic = key("@tendons");
  EXPECT_TRUE(succeeds(to_key(entity)));
}

TEST(Announcement, IsNoLongerThanItsLimits) {
  NodeAnnouncement node = vision();
  while (node.addresses.size() < tendon::kMaxAnnouncedAddresses) {
    node.addresses.push_back(address("10.0.0.6:1"));
  }
  expect_round_trip(node);
  const std::string fifth = text_of(node) + ",10.0.0.6:1";
  EXPECT_TRUE(fails_with(parse_announcement(fifth), ErrorCode::protocol_violation, "5 addresses"));
  node.addresses.push_back(address("10.0.0.6:1"));
  EXPECT_TRUE(fails_with(to_key(node), ErrorCode::limit_exceeded, "5 addresses of one node"));

  EntityAnnouncement entity = objects();
  for (const std::uint32_t samples : {0U, kMaxHistorySamples + 1}) {
    entity.qos.history = keep_last(samples);
    EXPECT_TRUE(fails_with(to_key(entity), ErrorCode::limit_exceeded, "legal: 1-65536"));
  }

  entity = objects();
  const std::size_t before = text_of(entity).size() - entity.topic.text().size();
  entity.topic = key(std::string(kMaxKeyBytes - before, 'a'));
  expect_round_trip(entity);
  EXPECT_TRUE(fails_with(parse_announcement(text_of(entity) + 'a'), ErrorCode::protocol_violation,
                         "4097 bytes"));
  entity.topic = key(std::string(kMaxKeyBytes - before + 1, 'a'));
  EXPECT_TRUE(fails_with(to_key(entity), ErrorCode::limit_exceeded, "4097 bytes"));

  std::string chunks = "a";
  for (std::size_t i = 8; i < tendon::kMaxKeyChunks; ++i) chunks += "/a";
  entity.topic = key(chunks);
  expect_round_trip(entity);
  entity.topic = key(chunks + "/a");
  EXPECT_TRUE(fails_with(to_key(entity), ErrorCode::limit_exceeded, "65 chunks"));
}

// Returns `whole` with the field `name` replaced; in it a field's value is its name.
std::string with(std::string whole, const std::string& name, const std::string& value) {
  const std::size_t at = whole.find(name);
  EXPECT_NE(at, std::string::npos);
  return whole.replace(at, name.size(), value);
}

TEST(Announcement, OfAStrangerIsCheckedFieldByField) {
  const std::string node = text_of(vision());
  const std::string entity = text_of(objects());
  const std::string addresses = "unix=a0a1a2a3a4a5a6a7,10.0.0.5:7000,[fd00::5]:7001";
  struct Case {
    std::string key;
    const char* why;
  };
  for (const Case& one : {
           Case{"", "at least one chunk"},
           Case{"vision/objects", "field 'prefix'"},
           Case{with(node, "@tendon", "@tendon2"), "field 'prefix'"},
           Case{"@tendon", "is empty"},
           Case{"@tendon/brain", "field 'kind'"},
           Case{with(node, "node", "nodes"), "field 'kind'"},
           Case{with(node, "node", "*"), "field 'kind'"},
           Case{with(node, "brain", "*"), "is spelt '%2A'"},
           Case{with(node, "vision", "%76ision"), "is spelt 'vision'"},
           Case{with(node, "vision", "**"), "is spelt"},
           Case{with(node, "vision", std::string(256, 'a')), "256 bytes"},
           Case{with(node, "/node/", "//"), "chunk is empty"},
           Case{with(node, kContext, "0"), "field 'context'"},
           Case{with(node, kContext, std::string(32, '0')), "Context of a node is none"},
           Case{with(node, kContext, std::string(32, 'F')), "field 'context'"},
           Case{with(node, kContext, "+" + std::string(31, '1')), "field 'context'"},
           Case{with(node, kContext, std::string(kContext) + "0"), "field 'context'"},
           Case{"@tendon/brain/node/vision/" + std::string(kContext), "field 'start'"},
           Case{with(node, "1764000000123456789", "01"), "field 'start'"},
           Case{with(node, "1764000000123456789", "-1"), "field 'start'"},
           Case{with(node, "1764000000123456789", "1x"), "field 'start'"},
           Case{with(node, "1764000000123456789", "18446744073709551616"), "field 'start'"},
           Case{with(node, "/" + addresses, ""), "address '' is empty"},
           Case{node + "/more", "behind the field 'addresses'"},
           Case{with(node, addresses, "none,none"), "has no port"},
           Case{with(node, addresses, "unix=a0"), "field 'addresses'"},
           Case{with(node, addresses, "unix=A0a1a2a3a4a5a6a7"), "field 'addresses'"},
           Case{with(node, addresses, "10.0.0.5:1,unix=a0a1a2a3a4a5a6a7"), "has no port"},
           Case{with(node, addresses, "10.0.0.5:1,"), "address '' is empty"},
           Case{with(node, addresses, ",10.0.0.5:1"), "address '' is empty"},
           Case{with(node, addresses, "10.0.0.5:01"), "field 'addresses'"},
           Case{with(node, addresses, "10.0.0.5"), "has no port"},
           Case{with(node, addresses, "host:1"), "no number"},
           Case{with(node, addresses, "0.0.0.0:1"), "every interface"},
           Case{with(node, addresses, "[::]:1"), "every interface"},
           Case{with(node, addresses, "10.0.0.5:0"), "port 0"},
           Case{with(node, addresses, "unix:@x"), "unix socket"},
           Case{with(entity, kContext, std::string(32, '0')), "of an entity is none"},
           Case{with(entity, "/7/", "/4294967296/"), "field 'entity'"},
           Case{with(entity, "/7/", "/*/"), "field 'entity'"},
           Case{with(entity, kSchema, "none"), "field 'schema'"},
           Case{with(entity, kSchema, std::string(31, 'a')), "field 'schema'"},
           Case{with(entity, "h1o1p1", "h0o1p1"), "history of 0 samples"},
           Case{with(entity, "h1o1p1", "h65537o1p1"), "history of 65537 samples"},
           Case{with(entity, "h1o1p1", "h01o1p1"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o0p1"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o3p1"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o257p1"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o1p3"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o1"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1p1o1"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o1p1h2"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o1p"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o1p1x"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "h1o1p1X2"), "field 'qos'"},
           Case{with(entity, "h1o1p1", "x1h1o1p1"), "field 'qos'"},
           Case{with(entity, "/vision/objects", ""), "at least one chunk"},
           Case{with(entity, "vision/objects", "vision/*"), "only subscribers"},
           Case{with(entity, "vision/objects", "@tendon/x"), "reserved"},
           Case{with(with(entity, "pub", "sub"), "vision/objects", "**/*"), "not canonical"},
           Case{node + "\xff", "not UTF-8"},
       }) {
    SCOPED_TRACE(one.key);
    EXPECT_TRUE(fails_with(parse_announcement(one.key), ErrorCode::protocol_violation, one.why));
  }
}

TEST(Announcement, MayHavePartsOfNewerPeersInItsQos) {
  const auto read = parse_announcement(with(text_of(objects()), "h1o1p1", "h2o2p1a0z4294967295"));
  ASSERT_TRUE(succeeds(read));
  EntityAnnouncement expected = objects();
  expected.qos = {keep_last(2), Overflow::block, Priority::normal};
  EXPECT_EQ(std::get<EntityAnnouncement>(*read), expected);
}

TEST(BootHash, TellsHostsApartAndKeepsTheirIds) {
  const auto id = counting_from<Nonce128>(0);
  const BootHash hash = boot_hash(id).value();
  // printf 'tendon boot id' | cat - <(printf '\x00\x01...\x0f') | sha256sum
  EXPECT_EQ(to_hex(hash), "7bab2b8799f453bc");
  EXPECT_NE(boot_hash(counting_from<Nonce128>(1)).value(), hash);
}

}  // namespace
