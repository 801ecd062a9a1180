// SPDX-License-Identifier: Apache-2.0
// Discovery by Zenoh over the double of its sessions: one thread, its own time, and one course for
// each seed.
#include "fabric/discovery/zenoh_discovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <tendon/fabric/limits.hpp>
#include <vector>

#include "fabric/discovery/known_peers.hpp"
#include "support/counting_port.hpp"
#include "support/expect.hpp"
#include "support/keys_of.hpp"
#include "support/node_crowd.hpp"
#include "support/zenoh_network.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using namespace tendon::detail;
using testing::ElementsAre;
using testing::IsEmpty;

KeyExpression key(std::string_view text) { return KeyExpression::parse(text).value(); }

class DiscoveryByZenoh : public testing::Test {
 protected:
  std::shared_ptr<ZenohDiscovery> start() {
    return ZenohDiscovery::create(
               network_.open(),
               [this](std::function<void()> run) { network_.after(0us, std::move(run)); })
        .value();
  }

  ZenohNetwork network_{{.seed = 7}};
};

TEST_F(DiscoveryByZenoh, TellsOfWhatIsFollowedAndOfItsOwn) {
  const auto a = start();
  const auto b = start();
  ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
  network_.run_until_quiet();
  ASSERT_TRUE(succeeds(b->announce(key("n/b"))));
  EXPECT_THAT(keys_of(*b), ElementsAre("n/b"));
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  EXPECT_EQ(b->picture(), Picture::incomplete);
  network_.run_until_quiet();
  EXPECT_EQ(b->picture(), Picture::complete);
  EXPECT_THAT(keys_of(*b), ElementsAre("n/a", "n/b"));
  EXPECT_THAT(keys_of(*a), ElementsAre("n/a"));
  a->withdraw(key("n/a"));
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*b), ElementsAre("n/b"));
}

TEST_F(DiscoveryByZenoh, CountsWhatIsAnnouncedAndFollowedTwice) {
  const auto a = start();
  const auto b = start();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
    ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  }
  a->withdraw(key("n/a"));
  b->unfollow(key("n/*"));
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*b), ElementsAre("n/a"));
  b->unfollow(key("n/*"));
  EXPECT_THAT(keys_of(*b), IsEmpty());
}

TEST_F(DiscoveryByZenoh, ChangesAreToldOnceForMany) {
  const auto a = start();
  const auto b = start();
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  network_.run_until_quiet();
  int told = 0;
  const std::uint64_t number = b->watch([&] { ++told; });
  ASSERT_TRUE(succeeds(b->announce(key("m/1"))));
  ASSERT_TRUE(succeeds(b->announce(key("m/2"))));
  network_.run_until_quiet();
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(succeeds(a->announce(key("n/1"))));
  network_.run_until_quiet();
  EXPECT_EQ(told, 2);
  b->unwatch(number);
  a->withdraw(key("n/1"));
  network_.run_until_quiet();
  EXPECT_EQ(told, 2);
}

// Keys that exist before and after are known again; keys that were withdrawn meanwhile are not.
TEST_F(DiscoveryByZenoh, AsksAgainWhenTheRouterIsBack) {
  const auto a = start();
  const auto b = start();
  ASSERT_TRUE(succeeds(a->announce(key("n/stays"))));
  ASSERT_TRUE(succeeds(a->announce(key("n/goes"))));
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  network_.run_until_quiet();
  ASSERT_EQ(keys_of(*b).size(), 2U);
  network_.stop_router();
  network_.run_until_quiet();
  EXPECT_EQ(b->picture(), Picture::incomplete);
  EXPECT_THAT(keys_of(*b), IsEmpty());
  a->withdraw(key("n/goes"));
  ASSERT_TRUE(succeeds(a->announce(key("n/new"))));
  network_.run_for(20s);  // requests end, and are not repeated before the router is back
  network_.heal();
  network_.run_until_quiet();
  EXPECT_EQ(b->picture(), Picture::complete);
  EXPECT_THAT(keys_of(*b), ElementsAre("n/new", "n/stays"));
}

// No event reports a partition: a request that ends without an answer is repeated.
TEST_F(DiscoveryByZenoh, FindsAfterAPartitionWhatCameInIt) {
  auto session_a = network_.open();
  const ZenohPort* const port_a = session_a.get();
  const auto a = ZenohDiscovery::create(std::move(session_a), [this](std::function<void()> run) {
                   network_.after(0us, std::move(run));
                 }).value();
  const auto b = start();
  network_.part({{port_a}});
  ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*b), IsEmpty());
  network_.heal();
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*b), ElementsAre("n/a"));
}

TEST_F(DiscoveryByZenoh, HasNoKeyThatIsTooLong) {
  const auto session = network_.open();
  const auto b = start();
  ASSERT_TRUE(succeeds(b->follow(key("n/**"))));
  const std::string most = "n/" + std::string(kMaxKeyBytes - 2, 'x');
  const auto token = session->token(key(most)).value();
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*b), ElementsAre(most));
}

// A request whose answer never arrives is not repeated.
TEST_F(DiscoveryByZenoh, EndsWhileItIsAsked) {
  const auto a = start();
  ASSERT_TRUE(succeeds(a->announce(key("n/a"))));
  auto b = start();
  ASSERT_TRUE(succeeds(b->follow(key("n/*"))));
  b.reset();
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*a), ElementsAre("n/a"));
}

// ---- how much each node hears

// Ten publishers match, and one node has them: the other nodes are not heard.
TEST_F(DiscoveryByZenoh, ANodeHearsOfWhatMatchesHoweverManyThereAre) {
  for (const std::uint32_t node_count : {12U, 48U}) {
    ZenohNetwork network({.seed = node_count});
    const NodeCrowd crowd(network, node_count);
    network.run_until_quiet();
    EXPECT_EQ(crowd.matched_count(), node_count);
    EXPECT_LE(crowd.most_events(), 2 * NodeCrowd::kMatching + 40) << node_count << " nodes";
  }
}

// ---- announcements of strangers

/// A session that reports what no honest router would.
class ForgingPort final : public CountingPort {
 public:
  using CountingPort::CountingPort;
  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    tell_ = on_token;
    return CountingPort::watch(pattern, std::move(on_token));
  }
  void tell(TokenChange change, std::string_view key) const { tell_(change, key); }

 private:
  OnToken tell_;
};

TEST_F(DiscoveryByZenoh, KeepsNothingAbsurdAndOnlySoMuch) {
  std::size_t told = 0;
  Stopwatch watch;
  auto port = std::make_unique<ForgingPort>(network_.open(), told, watch);
  const ForgingPort& forging = *port;
  const auto b = ZenohDiscovery::create(std::move(port), [this](std::function<void()> run) {
                   network_.after(0us, std::move(run));
                 }).value();
  ASSERT_TRUE(succeeds(b->follow(key("@tendon/brain/**"))));
  network_.run_until_quiet();
  forging.tell(TokenChange::came, "@tendon/brain/" + std::string(std::size_t{64} << 10, 'x'));
  EXPECT_THAT(keys_of(*b), IsEmpty());
  for (const std::string_view text :
       {std::string_view("@tendon/brain/pub/\xff\xfe"),
        std::string_view("@tendon/brain/pub/\0/1", 20), std::string_view("")})
    forging.tell(TokenChange::came, text);
  EXPECT_EQ(keys_of(*b).size(), 3U);  // as reported: they leave as they arrived
  for (std::size_t n = 0; n < ZenohDiscovery::kMostKeys; ++n)
    forging.tell(TokenChange::came, "@tendon/brain/forged/" + std::to_string(n));
  EXPECT_EQ(keys_of(*b).size(), ZenohDiscovery::kMostKeys);
  KnownPeers known("brain");
  KnownPeers::Changes changes;
  for (const std::string& text : keys_of(*b)) known.apply({text, KeyChange::came}, changes);
  EXPECT_TRUE(known.names().empty() && known.publishers().size() == 0);
  // A key that leaves makes room for a new one.
  const KeyExpression late_key = to_key(NodeAnnouncement{.domain = "brain",
                                                         .name = "late",
                                                         .context = context_id(1),
                                                         .start = 1,
                                                         .unix_on = {},
                                                         .addresses = {}})
                                     .value();
  const std::string& late = late_key.text();
  forging.tell(TokenChange::came, late);
  EXPECT_FALSE(keys_of(*b).contains(late));
  forging.tell(TokenChange::went, "@tendon/brain/forged/1");
  forging.tell(TokenChange::came, late);
  EXPECT_TRUE(keys_of(*b).contains(late));
}

class Flooded : public DiscoveryByZenoh {
 protected:
  Flooded() {
    auto port = std::make_unique<ForgingPort>(network_.open(), told_, watch_);
    forging_ = port.get();
    discovery_ =
        ZenohDiscovery::create(
            std::move(port),
            [this](std::function<void()> run) { network_.after(0us, std::move(run)); },
            [this](Deadline when, std::weak_ptr<Timed> timed) {
              ++looks_;
              network_.after(std::chrono::ceil<std::chrono::microseconds>(when.remaining()),
                             [timed = std::move(timed)] {
                               if (const auto self = timed.lock()) self->on_time();
                             });
            })
            .value();
    EXPECT_TRUE(succeeds(discovery_->follow(key("n/**"))));
    network_.run_until_quiet();
  }
  void forge(TokenChange change, std::size_t first, std::size_t end) const {
    for (std::size_t n = first; n < end; ++n)
      forging_->tell(change, "n/forged/" + std::to_string(n));
  }
  [[nodiscard]] bool has(const std::string& text) const {
    return keys_of(*discovery_).contains(text);
  }

  std::size_t told_ = 0;
  Stopwatch watch_;
  ForgingPort* forging_ = nullptr;
  std::shared_ptr<ZenohDiscovery> discovery_;
  int looks_ = 0;
};

// The honest key that arrived in the flood is known once there is room, without another report of
// it.
TEST_F(Flooded, AsksAgainWhenThereIsRoom) {
  forge(TokenChange::came, 0, ZenohDiscovery::kMostKeys);
  EXPECT_EQ(discovery_->picture(), Picture::complete) << "at the limit nothing is dropped";
  const auto honest = start();
  ASSERT_TRUE(succeeds(honest->announce(key("n/honest"))));
  network_.run_until_quiet();
  EXPECT_FALSE(has("n/honest"));
  EXPECT_EQ(discovery_->picture(), Picture::incomplete);
  forge(TokenChange::went, 0, ZenohDiscovery::kRoomToAsk - 1);
  network_.run_until_quiet();
  EXPECT_EQ(looks_, 0) << "one goes, one comes: that is no room";
  EXPECT_EQ(discovery_->picture(), Picture::incomplete);
  forge(TokenChange::went, ZenohDiscovery::kRoomToAsk - 1, ZenohDiscovery::kRoomToAsk);
  network_.run_until_quiet();
  EXPECT_EQ(looks_, 1);
  EXPECT_TRUE(has("n/honest"));
  EXPECT_EQ(discovery_->picture(), Picture::complete);
}

// The same holds if the bytes of keys are the limit: at the limit nothing is dropped, and one byte
// above it a key is.
TEST_F(Flooded, AsksAgainWhenThereIsRoomForBytes) {
  const auto long_key = [](std::size_t n) {
    const std::string number = std::to_string(n);
    return "n/" + number + std::string(kMaxKeyBytes - 2 - number.size(), 'x');
  };
  constexpr std::size_t kFull = ZenohDiscovery::kMostKeyBytes / kMaxKeyBytes;
  static_assert(kFull * kMaxKeyBytes == ZenohDiscovery::kMostKeyBytes);
  for (std::size_t n = 0; n < kFull; ++n) forging_->tell(TokenChange::came, long_key(n));
  EXPECT_EQ(keys_of(*discovery_).size(), kFull);
  EXPECT_EQ(discovery_->picture(), Picture::complete) << "at the limit nothing is dropped";
  const auto honest = start();
  ASSERT_TRUE(succeeds(honest->announce(key("n/honest"))));
  network_.run_until_quiet();
  EXPECT_FALSE(has("n/honest"));
  constexpr std::size_t kRoom = ZenohDiscovery::kRoomToAskBytes / kMaxKeyBytes;
  for (std::size_t n = 0; n + 1 < kRoom; ++n) forging_->tell(TokenChange::went, long_key(n));
  network_.run_until_quiet();
  EXPECT_EQ(looks_, 0);
  EXPECT_EQ(discovery_->picture(), Picture::incomplete);
  forging_->tell(TokenChange::went, long_key(kRoom - 1));
  network_.run_until_quiet();
  EXPECT_TRUE(has("n/honest"));
  EXPECT_EQ(discovery_->picture(), Picture::complete);
}

// The other pattern is unfollowed: its keys were the flood.
TEST_F(Flooded, AsksAgainWhenAnotherPatternMakesRoom) {
  ASSERT_TRUE(succeeds(discovery_->follow(key("m/**"))));
  network_.run_until_quiet();
  for (std::size_t n = 0; n < ZenohDiscovery::kMostKeys; ++n)
    forging_->tell(TokenChange::came, "m/" + std::to_string(n));
  const auto honest = start();
  ASSERT_TRUE(succeeds(honest->announce(key("n/honest"))));
  network_.run_until_quiet();
  EXPECT_FALSE(has("n/honest"));
  discovery_->unfollow(key("m/**"));
  network_.run_until_quiet();
  EXPECT_TRUE(has("n/honest"));
  EXPECT_EQ(discovery_->picture(), Picture::complete);
}

// No event reports the keys that changed meanwhile: the present keys are requested.
TEST_F(Flooded, FollowsAnewWhatWordsWereMissedOf) {
  const auto honest = start();
  ASSERT_TRUE(succeeds(honest->announce(key("n/stays"))));
  network_.run_until_quiet();
  forge(TokenChange::came, 0, 1);                // its end is missed
  forging_->tell(TokenChange::went, "n/stays");  // its return is missed
  forging_->tell(TokenChange::missed, {});
  EXPECT_EQ(discovery_->picture(), Picture::incomplete);
  EXPECT_TRUE(has("n/forged/0")) << "until it is known that it went";
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*discovery_), ElementsAre("n/stays"));
  EXPECT_EQ(discovery_->picture(), Picture::complete);
  // The new watch reports new and withdrawn keys.
  honest->withdraw(key("n/stays"));
  ASSERT_TRUE(succeeds(honest->announce(key("n/later"))));
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*discovery_), ElementsAre("n/later"));
}

// A key that is reported again keeps its place; a key that is withdrawn during the request is
// removed.
TEST_F(Flooded, KeepsWhatIsToldAgain) {
  const auto honest = start();
  ASSERT_TRUE(succeeds(honest->announce(key("n/a"))));
  ASSERT_TRUE(succeeds(honest->announce(key("n/b"))));
  network_.run_until_quiet();
  forging_->tell(TokenChange::missed, {});
  std::size_t changes = 0;
  const auto number = discovery_->watch([&] {
    ++changes;
    EXPECT_TRUE(has("n/a")) << "at no time it was gone";
  });
  network_.run_for(ZenohDiscovery::kFirstPause + 10us);  // followed anew, and not answered yet
  EXPECT_THAT(keys_of(*discovery_), ElementsAre("n/a", "n/b"));
  honest->withdraw(key("n/b"));
  network_.run_until_quiet();
  EXPECT_THAT(keys_of(*discovery_), ElementsAre("n/a"));
  EXPECT_GT(changes, 0U);
  discovery_->unwatch(number);
}

// Events are missed as fast as it asks: the pauses grow.
TEST_F(Flooded, AsksEverMoreRarelyWhileItGoesOn) {
  // Lasts 2 s, and no answer arrives in between.
  for (int n = 0; n < 50'000; ++n) {
    forging_->tell(TokenChange::missed, {});
    network_.run_for(40us);
  }
  EXPECT_THAT(looks_, testing::AllOf(testing::Ge(3), testing::Le(6))) << "after 0.1, 0.3, 0.7 s";
}

}  // namespace
}  // namespace tendon::test
