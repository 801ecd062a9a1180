// SPDX-License-Identifier: Apache-2.0
// Readers learn announcements by differences: each reader sees what has changed since it last
// looked, and nothing twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "fabric/discovery/known_peers.hpp"
#include "fabric/discovery/wants.hpp"
#include "fabric/keys/announced_keys.hpp"
#include "fabric/keys/key_set.hpp"
#include "support/expect.hpp"
#include "support/node_crowd.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

ChangedKey came(const std::string& key) { return {key, KeyChange::came}; }
ChangedKey went(const std::string& key) { return {key, KeyChange::went}; }

std::string node_key(const std::string& name, std::uint32_t context, std::uint64_t start = 1) {
  const KeyExpression key = to_key(NodeAnnouncement{.domain = "brain",
                                                    .name = name,
                                                    .context = context_id(context),
                                                    .start = start,
                                                    .unix_on = {},
                                                    .addresses = {}})
                                .value();
  return key.text();
}

std::string entity_key(EntityKind kind, std::uint32_t context, std::uint32_t entity,
                       const std::string& topic) {
  const KeyExpression key = to_key(EntityAnnouncement{.domain = "brain",
                                                      .kind = kind,
                                                      .context = context_id(context),
                                                      .entity = entity,
                                                      .schema = {},
                                                      .qos = {},
                                                      .topic = KeyExpression::parse(topic).value()})
                                .value();
  return key.text();
}

std::string publisher_key(std::uint32_t entity, const std::string& topic) {
  return entity_key(EntityKind::publisher, 1, entity, topic);
}

// ---- sets of keys

TEST(KeySets, TellEachReaderWhatHasChangedSinceItLooked) {
  KeySet keys;
  EXPECT_TRUE(keys.add("a"));
  const auto early = keys.read();
  EXPECT_TRUE(keys.add("b"));
  EXPECT_TRUE(keys.remove("a"));
  const auto late = keys.read();
  EXPECT_THAT(early->take(kAll), ElementsAre(came("b"))) << "what came and went has not changed";
  EXPECT_THAT(late->take(kAll), ElementsAre(came("b")));
  EXPECT_THAT(early->take(kAll), IsEmpty());
  keys.remove("b");
  keys.add("b");
  EXPECT_THAT(early->take(kAll), IsEmpty()) << "and what went and came is there as before";
  keys.remove("b");
  keys.add("c");
  keys.add("d");
  EXPECT_THAT(early->take(2), ElementsAre(went("b"), came("c"))) << "in order, so many at a time";
  EXPECT_THAT(early->take(2), ElementsAre(came("d")));
}

TEST(KeySets, HaveAKeyAsLongAsSomebodyAddedIt) {
  KeySet keys;
  EXPECT_TRUE(keys.add("a"));
  EXPECT_FALSE(keys.add("a"));
  EXPECT_FALSE(keys.remove("a"));
  EXPECT_TRUE(keys.remove("a"));
  EXPECT_FALSE(keys.remove("a"));
}

// A reader that looks after each change sees n changes, and not n * n / 2 keys.
TEST(KeySets, CostALookAtTheChangeHoweverManyKeysThereAre) {
  constexpr std::size_t kKeys = 4000;
  KeySet keys;
  const auto reader = keys.read();
  std::size_t seen = 0;
  for (std::size_t n = 0; n < kKeys; ++n) {
    keys.add("key " + std::to_string(n));
    seen += reader->take(kAll).size();
  }
  EXPECT_EQ(seen, kKeys);
}

// However many keys change, a reader that does not look keeps no more than there were and are.
TEST(KeySets, KeepLittleForAReaderThatDoesNotLook) {
  KeySet keys;
  keys.add("stays");
  const auto reader = keys.read();
  (void)reader->take(kAll);
  for (int n = 0; n < 1000; ++n) {
    keys.add(std::to_string(n));
    keys.remove(std::to_string(n));
    keys.remove("stays");
    keys.add("stays");
  }
  keys.remove("stays");
  EXPECT_THAT(reader->take(kAll), ElementsAre(went("stays")));
}

// ---- the announcements of one peer

TEST(AnnouncedByAPeer, AreSoManyKeysAndBytes) {
  for (const AnnouncingLimits limits :
       {AnnouncingLimits{}, AnnouncingLimits{kMaxOldAnnouncements, kMaxOldAnnouncedBytes}}) {
    AnnouncedKeys few(limits);
    const auto pipe = few.take_pipe();
    for (std::size_t n = 0; n < limits.keys; ++n)
      ASSERT_TRUE(succeeds(few.add(pipe, std::to_string(n))));
    EXPECT_FALSE(few.add(pipe, "0").value()) << "it is here already";
    const auto beyond = few.add(pipe, "one more");
    ASSERT_TRUE(fails_with(beyond, ErrorCode::limit_exceeded));
    EXPECT_THAT(beyond.error().detail, HasSubstr(std::to_string(limits.keys)));
    EXPECT_THAT(beyond.error().detail, HasSubstr("Announcements"));
    EXPECT_TRUE(few.remove(pipe, "0"));
    EXPECT_TRUE(succeeds(few.add(pipe, "one more")));

    AnnouncedKeys large(limits);
    const std::size_t most = limits.bytes / kMaxKeyBytes;
    const auto key = [](std::size_t n, std::size_t size) {
      const std::string text = std::to_string(n);
      return text + std::string(size - text.size(), 'x');
    };
    for (std::size_t n = 0; n < most; ++n)
      ASSERT_TRUE(succeeds(large.add(pipe, key(n, kMaxKeyBytes))));
    const auto more = large.add(pipe, "x");
    ASSERT_TRUE(fails_with(more, ErrorCode::limit_exceeded));
    EXPECT_THAT(more.error().detail, HasSubstr("AnnouncedBytes"));
    EXPECT_TRUE(large.remove(pipe, key(0, kMaxKeyBytes)));
    EXPECT_TRUE(succeeds(large.add(pipe, key(0, kMaxKeyBytes - 1))));
    EXPECT_TRUE(succeeds(large.add(pipe, "y"))) << "the last byte";
    EXPECT_TRUE(fails_with(large.add(pipe, "z"), ErrorCode::limit_exceeded));
  }
}

TEST(AnnouncedByAPeer, AreThereWhileOneOfItsPipesSaysSo) {
  AnnouncedKeys keys(AnnouncingLimits{});
  const auto one = keys.take_pipe();
  const auto other = keys.take_pipe();
  EXPECT_TRUE(keys.add(one, "a").value());
  EXPECT_FALSE(keys.add(other, "a").value());
  EXPECT_TRUE(keys.add(other, "b").value());
  EXPECT_FALSE(keys.remove(one, "b")) << "that one never said it";
  EXPECT_FALSE(keys.remove(one, "a"));
  EXPECT_TRUE(keys.remove(other, "a"));
}

TEST(AnnouncedByAPeer, GoWithTheirPipeAFewAtATime) {
  AnnouncedKeys keys(AnnouncingLimits{});
  const auto one = keys.take_pipe();
  const auto other = keys.take_pipe();
  for (int n = 10; n < 20; ++n) ASSERT_TRUE(succeeds(keys.add(one, std::to_string(n))));
  ASSERT_TRUE(succeeds(keys.add(other, "13")));
  std::string from;
  std::vector<std::string> gone;
  EXPECT_TRUE(keys.remove_some(one, 5, from, gone));
  EXPECT_THAT(gone, ElementsAre("10", "11", "12", "14"));
  EXPECT_FALSE(keys.remove_some(one, 5, from, gone));
  EXPECT_THAT(gone, SizeIs(9));
  EXPECT_TRUE(keys.remove(other, "13"));
  for (std::size_t n = 2; n < AnnouncedKeys::kMostWithLeaving; ++n)
    EXPECT_NE(keys.take_pipe(), AnnouncedKeys::kMostWithLeaving);
  EXPECT_EQ(keys.take_pipe(), AnnouncedKeys::kMostWithLeaving);
  keys.give_pipe_back(one);
  EXPECT_EQ(keys.take_pipe(), one);
}

// ---- the knowledge of a node

class KnownByANode : public testing::Test {
 protected:
  KnownPeers::Changes apply(const std::vector<ChangedKey>& keys) {
    KnownPeers::Changes changes;
    for (const ChangedKey& key : keys) known_.apply(key, changes);
    return changes;
  }
  [[nodiscard]] std::vector<std::string> publishers_of(const std::string& keys) const {
    std::vector<std::string> found;
    known_.publishers().each_of(
        KeyExpression::parse(keys).value(),
        [&](const EntityAnnouncement& publisher) { found.push_back(publisher.topic.text()); });
    return found;
  }

  KnownPeers known_{"brain"};
};

TEST_F(KnownByANode, NodesCountUnderTheirNames) {
  auto changes = apply({came(node_key("a", 1)), came(node_key("a", 2)), came(node_key("b", 2))});
  EXPECT_THAT(changes.names, ElementsAre("a", "b"));
  EXPECT_THAT(changes.contexts, SizeIs(2));
  EXPECT_EQ(known_.count_of("a"), 2u);
  EXPECT_THAT(known_.names(), ElementsAre("a", "a", "b"));
  EXPECT_EQ(known_.name_of(context_id(2)), "a+b");
  changes = apply({came(node_key("a", 1))});
  EXPECT_THAT(changes.names, IsEmpty()) << "another way tells the same";
  changes = apply({went(node_key("a", 1))});
  EXPECT_TRUE(known_.has_node(context_id(1)));
  changes = apply({went(node_key("a", 1))});
  EXPECT_FALSE(known_.has_node(context_id(1)));
  EXPECT_EQ(known_.count_of("a"), 1u);
  EXPECT_EQ(changes.had_nodes.at(context_id(1)), "a");
  apply({went(node_key("a", 1))});  // the word of a stranger
  EXPECT_EQ(known_.count_of("a"), 1u);
}

TEST_F(KnownByANode, ANameForPeopleHasNotAllOfAThousandNodes) {
  for (std::uint64_t n = 0; n < KnownPeers::kMostNames; ++n)
    apply({came(node_key("n" + std::to_string(n), 1))});
  EXPECT_EQ(known_.name_of(context_id(1)), "n0+n1+n2+n3+n4+n5+n6+n7");
  apply({came(node_key("n8", 1))});
  EXPECT_EQ(known_.name_of(context_id(1)), "n0+n1+n2+n3+n4+n5+n6+n7+...");
}

TEST_F(KnownByANode, PublishersAreFoundByWhatIsTaken) {
  apply({came(publisher_key(1, "t/1")), came(publisher_key(2, "t/10")), came(publisher_key(3, "t")),
         came(publisher_key(4, "tt/1")), came(publisher_key(5, "u/1")),
         came(publisher_key(6, "t/1"))});
  EXPECT_THAT(publishers_of("t/1"), ElementsAre("t/1", "t/1"));
  EXPECT_THAT(publishers_of("t/**"), ElementsAre("t", "t/1", "t/1", "t/10"));
  EXPECT_THAT(publishers_of("t/1$*"), ElementsAre("t/1", "t/1", "t/10"));
  EXPECT_THAT(publishers_of("*/1"), ElementsAre("t/1", "t/1", "tt/1", "u/1"));
  apply({went(publisher_key(1, "t/1"))});
  EXPECT_THAT(publishers_of("t/1"), ElementsAre("t/1"));
  EXPECT_THAT(publishers_of("v"), IsEmpty());
}

// No honest Context has two keys for one number.
TEST_F(KnownByANode, OneKeyOfAnIdCountsAtATime) {
  auto changes = apply({came(publisher_key(1, "honest"))});
  EXPECT_THAT(changes.entities, SizeIs(1));
  changes = apply({came(publisher_key(1, "forged")), came(publisher_key(1, "forged too")),
                   went(publisher_key(1, "forged too"))});
  EXPECT_THAT(changes.entities, IsEmpty());
  EXPECT_THAT(publishers_of("forged"), IsEmpty());
  changes = apply({went(publisher_key(1, "honest"))});
  ASSERT_THAT(changes.entities, SizeIs(2));
  EXPECT_EQ(changes.entities[0].first, KeyChange::went);
  EXPECT_EQ(changes.entities[0].second.topic.text(), "honest");
  EXPECT_EQ(changes.entities[1].first, KeyChange::came);
  EXPECT_THAT(publishers_of("forged"), ElementsAre("forged"));
  apply({went(publisher_key(1, "forged"))});
  EXPECT_EQ(known_.publishers().size(), 0u);
}

TEST_F(KnownByANode, WhatIsOfAnotherDomainOrCannotBeReadIsNotThere) {
  const auto changes = apply({came("@tendon/other/node/a/" + context_id(1).to_string() + "/1/none"),
                              came("@tendon/brain/robot/1"), came("\xff")});
  EXPECT_THAT(known_.names(), IsEmpty());
  EXPECT_THAT(changes.names, IsEmpty());
}

// ---- the wants of a node

TEST(WhatANodeWants, WaitsForTheNodeAndIsToldOfOnce) {
  Wants wants;
  const PublisherId one{context_id(1), 1};
  const PublisherId two{context_id(1), 2};
  const PublisherId other{context_id(2), 1};
  wants.add(one, 7);
  wants.add(one, 8);
  wants.add(two, 7);
  wants.add(other, 7);
  wants.wait_for_node({two, 7});
  EXPECT_THAT(wants.take_waiting(context_id(1)), ElementsAre(Wants::Want{two, 7}));
  EXPECT_THAT(wants.take_waiting(context_id(1)), ElementsAre(Wants::Want{one, 7}))
      << "one of those that did not wait, so that it hears where the Context is now";
  EXPECT_THAT(wants.tell_all_of(context_id(1)), ElementsAre(one, two));
  EXPECT_THAT(wants.tell_all_of(context_id(1)), IsEmpty());
  EXPECT_FALSE(wants.tell(one));
  wants.note_reached(one);
  EXPECT_TRUE(wants.tell(one));
  wants.remove(one, 7);
  EXPECT_TRUE(wants.has(one));
  EXPECT_THAT(wants.remove(one), ElementsAre(8u));
  EXPECT_THAT(wants.remove(two), ElementsAre(7u));
  EXPECT_FALSE(wants.has(context_id(1)));
  EXPECT_TRUE(wants.has(context_id(2)));
}

}  // namespace
}  // namespace tendon::test
