// SPDX-License-Identifier: Apache-2.0
#include "runtime/link_table.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <tendon/session/limits.hpp>
#include <utility>

#include "runtime/link_limit.hpp"
#include "support/expect.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = LinkTable::Clock;
using test::fails_with;
using test::succeeds;

PeerIdentity numbered(std::uint64_t number) {
  PeerIdentity identity;
  identity.name = "peer";
  std::memcpy(identity.context.bytes.data(), &number, sizeof number);
  return identity;
}

/// A link that shows the table only its counters.
class CountedLink final : public Link {
 public:
  explicit CountedLink(std::uint64_t number) : CountedLink(numbered(number), LinkRole::acceptor) {}
  CountedLink(PeerIdentity peer, LinkRole role)
      : Link({}, {PathKind::shm, "a test asked for it"}, std::move(peer), 1 << 20, 1 << 20) {
    agree(Features::of_minor(kProtocolMinor), role);
  }

  Result<std::shared_ptr<LoanedSlot>> acquire(std::uint64_t) override { return no(); }
  bool owns(const LoanedSlot&) const override { return false; }
  Result<Sent> send(SendOp&, Deadline) override { return no(); }
  bool withdraw(SendOp&) override { return true; }
  void post(const Descriptor&) override {}
  void post(const Descriptor&, Bytes) override {}
  bool drained() override { return true; }
  bool has_input() const noexcept override { return false; }
  bool poll() override { return false; }
  bool lend(const IncomingBody&) noexcept override { return false; }
  Result<void> start(Reactor&, LinkObserver&) override { return {}; }
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void tick(Clock::time_point) override {}
  void shut_down() override {}
  void on_ready(int, std::uint32_t) override {}
  bool collect_returns() override { return std::exchange(stats_.holds, 0) != 0; }
  LinkStats stats() const override { return stats_; }

  LinkStats stats_;

 protected:
  void on_failed(Death) override {}

 private:
  static Error no() { return {ErrorCode::not_supported, "test", "not in this test"}; }
};

constexpr std::uint32_t kStreams = 1;

Source source_of(std::uint8_t number) {
  Source source{};
  source.back() = std::byte{number};
  return source;
}

/// A process that claims to be peer 7.
PeerIdentity claim(std::int64_t pid) {
  PeerIdentity identity = numbered(7);
  identity.pid = pid;
  return identity;
}

struct Table {
  std::shared_ptr<CountedLink> add() {
    auto link = std::make_shared<CountedLink>(++count);
    if (!links.insert(link, Proofs{.host = Proofs::Host::same_user}, {})) return nullptr;
    links.started(*link);
    return link;
  }
  /// Adds a link without proofs, as add_link() does.
  Result<std::shared_ptr<CountedLink>> add(const PeerIdentity& peer, LinkRole role,
                                           const LinkOrigin& origin = {}) {
    TENDON_CHECK(links.may_add(peer, role, {}, origin));
    auto link = std::make_shared<CountedLink>(peer, role);
    TENDON_TRY(older, links.insert(link, {}, origin));
    if (older != nullptr) links.remove(*older);
    links.started(*link);
    return link;
  }
  std::shared_ptr<Link> usable(ReachBy by) {
    return links.usable(numbered(7).context, Profile::plaintext, by);
  }
  const ContextId self{};
  LinkTable links{self, kStreams};
  std::uint64_t count = 0;
};

TEST(LinkTable, AnEndedLinkWithHoldsCountsAsALink) {
  Table table;
  const auto first = table.add();
  first->stats_.holds = 3;
  table.links.note_ended(*first, LinkTable::Memory::held);
  EXPECT_TRUE(table.links.all()->empty());
  EXPECT_NE(table.links.describe().find("3 holds of published slots"), std::string::npos);
  for (std::size_t i = 1; i < most_links(kStreams); ++i) ASSERT_NE(table.add(), nullptr) << i;
  EXPECT_EQ(table.add(), nullptr);
  EXPECT_TRUE(table.links.candidates_to_end(numbered(77'777), {}).has_value());
  // The link counts until a tick has asked it.
  EXPECT_TRUE(table.links.collect_returns(LinkTable::Of::ended_with_holds));
  EXPECT_EQ(table.add(), nullptr);
  (void)table.links.take_tick(Clock::now());
  EXPECT_NE(table.add(), nullptr);
}

TEST(LinkTable, AnEndedLinkWithHoldsIsLookedAfterAndNeverGivesWay) {
  Table table;
  const auto holder = table.add();
  holder->stats_.holds = 1;
  table.links.note_ended(*holder, LinkTable::Memory::held);
  EXPECT_NE(table.links.next_tick().time_point(), Deadline::never().time_point());
  for (std::size_t i = 0; i < 2 * kMaxQuarantinedLinks; ++i) {
    const auto link = table.add();
    link->stats_.slots.quarantined_count = 1;
    table.links.note_ended(*link, LinkTable::Memory::quarantined);
  }
  EXPECT_EQ(holder.use_count(), 2);
  EXPECT_TRUE(table.links.collect_returns(LinkTable::Of::ended_with_holds));
  EXPECT_FALSE(table.links.collect_returns(LinkTable::Of::ended_with_holds));
  (void)table.links.take_tick(Clock::now());
  EXPECT_EQ(holder.use_count(), 1);
}

TEST(LinkTable, HasAsManyLinksAsThereAreDescriptors) {
  static_assert(links_within(1024, 1) == 240);
  static_assert(links_within(1024, 16) == 50);
  static_assert(links_within(64 + 4 * 1024, 1) == 1024);
  static_assert(links_within(64 + 4 * 1024 - 1, 1) == 1023);
  static_assert(links_within(~std::uint64_t{0}, 1) == kMaxLinksPerContext);
  static_assert(links_within(0, 1) == 1, "one is always let in");
}

TEST(LinkTable, SaysWhichLimitIsReached) {
  Table table;
  while (table.add() != nullptr) {
  }
  const Error full = table.links.full(LinkRole::acceptor, {});
  EXPECT_EQ(full.code, ErrorCode::server_busy);
  EXPECT_NE(full.detail.find("its " + std::to_string(most_links(kStreams)) + " links"),
            std::string::npos);
  EXPECT_EQ(full.detail.find("RLIMIT_NOFILE") == std::string::npos,
            most_links(kStreams) == kMaxLinksPerContext);
  EXPECT_EQ(table.links.full(LinkRole::connector, {}).code, ErrorCode::limit_exceeded);
}

TEST(LinkTable, LinksFromOneAddressHaveALimit) {
  Table table;
  const LinkOrigin one{.source = source_of(1)};
  for (std::uint64_t n = 1; n <= kMaxLinksPerSource; ++n) {
    EXPECT_FALSE(table.links.candidates_to_end(numbered(n), one).has_value());
    ASSERT_TRUE(succeeds(table.add(numbered(n), LinkRole::acceptor, one)));
  }
  const PeerIdentity more = numbered(kMaxLinksPerSource + 1);
  EXPECT_TRUE(fails_with(table.add(more, LinkRole::acceptor, one), ErrorCode::server_busy,
                         "64 links of one address"));
  // Another address has room, and the crowd's own links are the ones to end.
  const LinkOrigin other{.source = source_of(2)};
  EXPECT_FALSE(table.links.candidates_to_end(more, other).has_value());
  ASSERT_TRUE(succeeds(table.add(more, LinkRole::acceptor, other)));
  const auto candidates = table.links.candidates_to_end(numbered(1000), one);
  ASSERT_TRUE(candidates);
  EXPECT_EQ(candidates->size(), kMaxLinksPerSource);
  // A known peer takes its own place.
  EXPECT_FALSE(table.links.candidates_to_end(numbered(1), one).has_value());
  EXPECT_TRUE(succeeds(table.add(numbered(1), LinkRole::acceptor, one)));
  // Loopback, and links made by this side, do not count.
  EXPECT_TRUE(succeeds(table.add(numbered(1001), LinkRole::acceptor)));
}

// ---- one context id, claimed by several

TEST(LinkTable, KeepsTheLinksApartOfThoseWhoClaimOneId) {
  Table table;
  const auto squatter = table.add(claim(1), LinkRole::acceptor).value();
  const auto honest = table.add(claim(2), LinkRole::acceptor).value();
  PeerIdentity elsewhere = claim(2);
  elsewhere.host = "elsewhere";
  const auto third = table.add(elsewhere, LinkRole::acceptor).value();
  EXPECT_EQ(table.links.all()->size(), 3u);
  // Each takes its own place again, whatever the boot ids of others.
  const auto again = table.add(claim(2), LinkRole::acceptor).value();
  EXPECT_EQ(table.links.all()->size(), 3u);
  EXPECT_FALSE(table.links.entry_of(*honest));
  EXPECT_TRUE(table.links.entry_of(*squatter));
  const auto other_boot = table.add(claim(2), LinkRole::acceptor, {.boot_id = {std::byte{9}}});
  ASSERT_TRUE(succeeds(other_boot));
  EXPECT_EQ(table.links.all()->size(), kMaxClaimsPerContext);
  EXPECT_TRUE(fails_with(table.add(claim(5), LinkRole::acceptor), ErrorCode::permission_denied,
                         "kMaxClaimsPerContext"));
  EXPECT_TRUE(succeeds(table.add(claim(1), LinkRole::acceptor))) << "it has a place";
}

TEST(LinkTable, RefusesAClaimToAnIdThatIsProved) {
  Table table;
  const auto proved = std::make_shared<CountedLink>(claim(1), LinkRole::acceptor);
  ASSERT_TRUE(succeeds(table.links.insert(proved, Proofs{.host = Proofs::Host::same_user}, {})));
  table.links.started(*proved);
  EXPECT_TRUE(fails_with(table.add(claim(2), LinkRole::acceptor), ErrorCode::permission_denied,
                         "which has one"));
  EXPECT_EQ(table.usable(ReachBy::address), proved);
}

/// Adds peer 7, whose link in this role has proved `proofs`.
Result<std::shared_ptr<Link>> add_proved(Table& table, LinkRole role, const Proofs& proofs) {
  const auto link = std::make_shared<CountedLink>(claim(1), role);
  auto inserted = table.links.insert(link, proofs, {});
  if (inserted) table.links.started(*link);
  return inserted;
}

TEST(LinkTable, AContextHasOneName) {
  const Proofs seven{.identity = "tendon://robot/7", .credential = "c1"};
  const Proofs renewed{.identity = "tendon://robot/7", .credential = "c2"};
  const Proofs eight{.identity = "tendon://robot/8", .credential = "c3"};
  Table table;
  ASSERT_TRUE(succeeds(add_proved(table, LinkRole::acceptor, seven)));
  for (const LinkRole role : {LinkRole::acceptor, LinkRole::connector}) {
    EXPECT_TRUE(fails_with(table.links.may_be(claim(1).context, role, eight),
                           ErrorCode::protocol_violation, "tendon://robot/8"));
    EXPECT_TRUE(fails_with(add_proved(table, role, eight), ErrorCode::protocol_violation));
    EXPECT_TRUE(succeeds(table.links.may_be(claim(1).context, role, seven)));
    EXPECT_TRUE(succeeds(table.links.may_be(claim(1).context, role, renewed)));
    EXPECT_TRUE(succeeds(table.links.may_be(numbered(8).context, role, eight)));
    EXPECT_TRUE(succeeds(table.links.may_be(claim(1).context, role, {})));
  }
  EXPECT_EQ(table.links.all()->size(), 1u);
  EXPECT_TRUE(succeeds(table.links.may_reuse(claim(1).context, Profile::secure, renewed)));
  EXPECT_TRUE(fails_with(table.links.may_reuse(claim(1).context, Profile::secure, eight),
                         ErrorCode::permission_denied));
  // After its last link ends, the name is free.
  table.links.all()->front()->fail({ErrorCode::peer_lost, "test", "it went"}, Death::not_proved);
  EXPECT_TRUE(succeeds(table.links.may_be(claim(1).context, LinkRole::acceptor, eight)));
}

// While keys are replaced, a host that lists the new key first dials with it, and hosts that list
// it second still dial with the old one.
TEST(LinkTable, EachSideOfALinkMayUseAnotherKey) {
  const Proofs old{.identity = "key:fleet", .credential = "k1"};
  const Proofs renewed{.identity = "key:fleet-2", .credential = "k2"};
  const Proofs stolen{.identity = "key:fleet", .credential = "k3"};
  const Proofs certificate{.identity = "tendon://robot/7", .credential = "c1"};
  Table table;
  ASSERT_TRUE(succeeds(add_proved(table, LinkRole::acceptor, old)));
  for (const Proofs& other : {renewed, stolen, certificate}) {
    EXPECT_TRUE(fails_with(table.links.may_be(claim(1).context, LinkRole::acceptor, other),
                           ErrorCode::protocol_violation, other.identity));
    EXPECT_TRUE(succeeds(table.links.may_be(claim(1).context, LinkRole::connector, other)));
  }
  EXPECT_TRUE(succeeds(table.links.may_be(claim(1).context, LinkRole::acceptor, old)));
  EXPECT_TRUE(succeeds(add_proved(table, LinkRole::connector, renewed)));
}

TEST(LinkTable, KnowsByWhichKeyAnAddressWasDialled) {
  const Proofs fleet{.identity = "key:fleet", .credential = "k1"};
  Table table;
  ASSERT_TRUE(succeeds(add_proved(table, LinkRole::acceptor, fleet)));
  EXPECT_EQ(table.links.key_of_dialled("a", claim(1).context), Proofs{}) << "the peer has dialled";
  ASSERT_TRUE(succeeds(add_proved(table, LinkRole::connector, fleet)));
  const auto link = table.links.all()->back();
  table.links.note_dialled(*link, "a");
  EXPECT_EQ(table.links.key_of_dialled("a", {}), fleet);
  EXPECT_EQ(table.links.key_of_dialled("b", {}), Proofs{});
  EXPECT_EQ(table.links.key_of_dialled("b", claim(1).context), fleet);
  EXPECT_EQ(table.links.key_of_dialled("a", numbered(8).context), Proofs{});
  for (std::size_t n = 1; n < LinkTable::kMostDialledAddresses; ++n)
    table.links.note_dialled(*link, std::to_string(n));
  table.links.note_dialled(*link, "a");
  table.links.note_dialled(*link, "b");
  EXPECT_EQ(table.links.key_of_dialled("1", {}), Proofs{}) << "the oldest one";
  EXPECT_EQ(table.links.key_of_dialled("a", {}), fleet);
  link->fail({ErrorCode::peer_lost, "test", "it went"}, Death::not_proved);
  EXPECT_EQ(table.links.key_of_dialled("a", {}), Proofs{});
}

TEST(LinkTable, TakesTheKeyOfTheLatestLinkToAnAddress) {
  const Proofs old{.identity = "key:fleet", .credential = "k1"};
  const Proofs renewed{.identity = "key:fleet-2", .credential = "k2"};
  Table table;
  std::uint64_t number = 0;
  for (const Proofs& proofs : {old, renewed, Proofs{.host = Proofs::Host::same_user}}) {
    const auto link = std::make_shared<CountedLink>(numbered(++number), LinkRole::connector);
    ASSERT_TRUE(succeeds(table.links.insert(link, proofs, {})));
    table.links.note_dialled(*link, "a");
  }
  EXPECT_EQ(table.links.key_of_dialled("a", {}), renewed);
}

TEST(LinkTable, OpensOnLinksThatThisSideMadeWhoeverClaimsTheId) {
  Table table;
  const auto squatter = table.add(claim(1), LinkRole::acceptor).value();
  EXPECT_EQ(table.usable(ReachBy::address), nullptr);
  EXPECT_EQ(table.usable(ReachBy::context), nullptr) << "its address is dialled first";
  const auto made = table.add(claim(2), LinkRole::connector).value();
  for (const ReachBy by : {ReachBy::address, ReachBy::context, ReachBy::any})
    EXPECT_EQ(table.usable(by), made);
  // A second process that answers under that id at an address of ours is another peer.
  EXPECT_TRUE(fails_with(table.add(claim(3), LinkRole::connector), ErrorCode::permission_denied));
}

TEST(LinkTable, OpensOnALinkThatAPeerMadeOnceItWasChosen) {
  Table table;
  const auto made_there = table.add(claim(1), LinkRole::acceptor).value();
  EXPECT_EQ(table.usable(ReachBy::context), nullptr);
  EXPECT_EQ(table.usable(ReachBy::any), made_there) << "it is reached in no other way";
  EXPECT_EQ(table.usable(ReachBy::context), made_there) << "from now on";
  EXPECT_EQ(table.usable(ReachBy::address), nullptr);
  (void)table.add(claim(2), LinkRole::acceptor).value();
  EXPECT_EQ(table.usable(ReachBy::any), made_there) << "also for links that come after it";
}

}  // namespace
}  // namespace tendon::v0::detail
