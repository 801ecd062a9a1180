// SPDX-License-Identifier: Apache-2.0
// Links that renew their session repeatedly while they carry messages, and peers that renew it
// wrongly.
#include "secure/renewal.hpp"

#include <gmock/gmock.h>

#include <array>
#include <tendon/session/limits.hpp>

#include "link_pair.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr std::uint64_t kCapBytes = 64ull << 20;

// Small ones travel beside the descriptor, large ones over the lanes.
constexpr std::array<std::uint64_t, 6> kSizes{0, 100, 5000, 8192, 20'000, 300'000};

/// Sends messages each way on two pipes and expects that none is lost, doubled, changed or out of
/// order.
void expect_carried(LinkPair& pair, std::uint64_t messages,
                    const std::function<void()>& meanwhile) {
  for (LinkEnd* end : {&pair.a, &pair.b})
    for (std::uint32_t pipe = 1; pipe <= 2; ++pipe) end->attach(pipe);
  std::vector<std::unique_ptr<OutgoingMessage>> kept;
  const auto all_sent = [&](std::uint64_t sequence) {
    std::vector<std::pair<LinkEnd*, OutgoingMessage*>> sending;
    for (LinkEnd* end : {&pair.a, &pair.b}) {
      for (std::uint32_t pipe = 1; pipe <= 2; ++pipe) {
        kept.push_back(std::make_unique<OutgoingMessage>(
            pipe, sequence, kSizes[(sequence + pipe) % kSizes.size()], sequence * 10 + pipe));
        sending.emplace_back(end, kept.back().get());
      }
    }
    return eventually(
        [&] {
          std::erase_if(sending, [](const auto& one) {
            const auto sent = one.first->link->send(one.second->op(), Deadline::never());
            EXPECT_TRUE(succeeds(sent));
            return !sent || *sent == Sent::done;
          });
          return sending.empty();
        },
        [&] {
          meanwhile();
          if (!pair.turn()) pair.reactor.turn(1);
        });
  };
  for (std::uint64_t sequence = 1; sequence <= messages; ++sequence) {
    ASSERT_TRUE(all_sent(sequence)) << sequence;
    // Turns as the ends of a link do, while the next messages are made.
    for (int turns = 0; turns < 6; ++turns) {
      meanwhile();
      pair.turn();
    }
  }
  const auto are_here = [&](LinkEnd& end) {
    return end.sinks[1]->complete_count() == messages && end.sinks[2]->complete_count() == messages;
  };
  ASSERT_TRUE(pair.turn_until([&] { return are_here(pair.a) && are_here(pair.b); }));
  for (LinkEnd* end : {&pair.a, &pair.b}) {
    EXPECT_FALSE(end->observer.error) << end->observer.error->message();
    for (std::uint32_t pipe = 1; pipe <= 2; ++pipe) {
      const RecordingSink& sink = *end->sinks[pipe];
      ASSERT_EQ(sink.received.size(), messages);
      for (std::uint64_t sequence = 1; sequence <= messages; ++sequence) {
        EXPECT_EQ(sink.received[sequence - 1].descriptor.sequence, sequence);
        const OutgoingMessage sent(pipe, sequence, kSizes[(sequence + pipe) % kSizes.size()],
                                   sequence * 10 + pipe);
        EXPECT_TRUE(sink.body(sequence - 1) == sent.expected()) << pipe << "/" << sequence;
      }
    }
  }
}

struct Way {
  const char* name;
  int family;  // 0: shared memory
  int lanes;
};

class RenewingLinks : public testing::TestWithParam<Way> {
 protected:
  static LinkFactory factory(const CredentialPair& credentials,
                             const CredentialPair& renewed = {}) {
    const Way& way = GetParam();
    if (way.family == 0) return shm_factory({}, renewed.first == nullptr ? credentials : renewed);
    return secure_factory(way.name, way.lanes, credentials, way.family, renewed);
  }
  /// Time passes for a shm link in its ticks alone; streams look at the bytes they have carried.
  static void tick(LinkPair& pair) {
    if (GetParam().family != 0) return;
    now_ += 1ms;
    pair.a.link->tick(now_);
    pair.b.link->tick(now_);
  }

  static inline auto now_ = std::chrono::steady_clock::now();
};

TEST_P(RenewingLinks, LoseAndDoubleNothing) {
  LinkPair pair;
  const auto credentials = test_credentials(renewals_each(4096));
  factory({credentials, credentials}).make(pair, kCapBytes);
  expect_carried(pair, 60, [&] { tick(pair); });
  const std::uint64_t renewals = pair.a.link->stats().renewals;
  EXPECT_GE(renewals, 20u);
  EXPECT_LE(renewals - pair.b.link->stats().renewals, 1u);
  EXPECT_EQ(pair.a.link->stats().refused_renewals, 0u);
}

TEST_P(RenewingLinks, EndInOrderWhileTheyRenew) {
  for (int turns = 0; turns < 12; ++turns) {
    for (const bool is_client : {true, false}) {
      LinkPair pair;
      const auto credentials = test_credentials(renewals_each(1));
      factory({credentials, credentials}).make(pair, kCapBytes);
      pair.a.attach(1);
      pair.b.attach(1);
      OutgoingMessage message(1, 1, 100, 1);
      pair.send(pair.a, message);
      tick(pair);
      for (int n = 0; n < turns; ++n) (n % 2 == 0 ? pair.a : pair.b).poll();
      LinkEnd& ends = is_client ? pair.a : pair.b;
      LinkEnd& hears = is_client ? pair.b : pair.a;
      {
        std::lock_guard receiving(ends.link->receive_mutex());
        ends.link->shut_down();
      }
      ASSERT_TRUE(pair.turn_until([&] { return hears.link->ended(); }));
      EXPECT_FALSE(hears.observer.error) << turns << ": " << hears.observer.error->message();
    }
  }
}

// The key of one end has changed, under the same label.
TEST_P(RenewingLinks, EndWithANameWhereThePeerIsAnother) {
  secure::CredentialParts parts;
  parts.keys.push_back(
      {"fleet", SecretBytes::copy_of(std::vector<std::byte>(kSharedKeyBytes, std::byte{1})), {}});
  parts.rotation.renewal = renewals_each(4096);
  const auto other = secure::Credentials::make(std::move(parts)).value();
  const auto right = test_credentials(renewals_each(4096));
  for (const bool is_client : {true, false}) {
    LinkPair pair;
    factory({right, right}, is_client ? CredentialPair{other, right} : CredentialPair{right, other})
        .make(pair, kCapBytes);
    pair.a.attach(1);
    pair.b.attach(1);
    OutgoingMessage message(1, 1, 8000, 1);
    pair.send(pair.a, message);
    ASSERT_TRUE(eventually([&] { return pair.a.link->ended() && pair.b.link->ended(); },
                           [&] {
                             tick(pair);
                             if (!pair.turn()) pair.reactor.turn(1);
                           }));
    for (const LinkEnd* end : {&pair.a, &pair.b}) {
      ASSERT_TRUE(end->observer.error);
      EXPECT_EQ(end->observer.error->code, ErrorCode::authentication_failed);
      EXPECT_EQ(end->observer.ended_count, 1);
    }
    // The server alone knows first whether a key is right, and names it; the other end hears one
    // text.
    EXPECT_THAT(pair.b.observer.error->detail, HasSubstr("peer a"));
    EXPECT_THAT(pair.b.observer.error->detail, HasSubstr("'key:fleet', and has not the key"));
    EXPECT_THAT(pair.a.observer.error->detail,
                HasSubstr("the peer refused to renew the session with this end"));
    EXPECT_EQ(pair.b.link->stats().refused_renewals, 1u);
    EXPECT_EQ(pair.a.link->stats().renewals + pair.b.link->stats().renewals, 0u);
  }
}

/// A word that a peer says although it is not due.
Descriptor word_of(secure::RenewalWord word, std::size_t bytes) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::secure;
  descriptor.tag = static_cast<std::uint32_t>(word);
  descriptor.payload_bytes = bytes;
  return descriptor;
}

TEST_P(RenewingLinks, RefuseWhatIsNotDue) {
  using secure::RenewalWord;
  const std::vector<std::byte> noise(500, std::byte{22});
  struct Case {
    RenewalWord word;
    bool to_server;
    const char* says;
  };
  for (const Case& said :
       {Case{RenewalWord::handshake, true, ""},
        Case{RenewalWord::handshake, false, "'handshake' while it is idle"},
        Case{RenewalWord::done, true, "'done' while it is idle"},
        Case{RenewalWord::done, false, "'done' while it is idle"},
        Case{RenewalWord::switched, true, "'switched' while it is idle"},
        Case{RenewalWord::switched, false, "'switched' while it is idle"},
        Case{RenewalWord{4}, true, "no meaning"}, Case{RenewalWord{0xff}, false, "no meaning"}}) {
    LinkPair pair;
    const auto credentials = test_credentials({});
    factory({credentials, credentials}).make(pair, kCapBytes);
    LinkEnd& mallory = said.to_server ? pair.a : pair.b;
    LinkEnd& end = said.to_server ? pair.b : pair.a;
    const Bytes body = said.word == RenewalWord::handshake ? Bytes(noise) : Bytes();
    mallory.link->post(word_of(said.word, body.size()), body);
    pair.settle();
    expect_violation(end, said.says, said.to_server ? "peer a" : "peer b");
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, RenewingLinks,
                         testing::Values(Way{"tcp", AF_INET, 1}, Way{"tcp_3_lanes", AF_INET, 3},
                                         Way{"unix_2_lanes", AF_UNIX, 2}, Way{"shm", 0, 0}),
                         [](const auto& tested) { return tested.param.name; });

// A link without TLS has nothing to renew.
TEST(Renewals, AreRefusedWithoutASession) {
  for (const LinkFactory& factory : {tcp_factory("tcp", AF_INET, 1), shm_factory()}) {
    LinkPair pair;
    factory.make(pair, kCapBytes);
    const std::array<std::byte, 1> body{};
    pair.a.link->post(word_of(secure::RenewalWord::handshake, 1), body);
    pair.settle();
    expect_violation(pair.b, "on a link that has none", "peer a");
  }
}

/// A server that waits for one lane more than it has.
struct LaneToCome : testing::Test {
  LaneToCome() {
    auto credentials = test_credentials(renewals_each(1000));
    secure_factory("tls", 1, {credentials, credentials}, AF_UNIX, {credentials, credentials}, 1)
        .make(pair, kCapBytes);
  }
  LinkPair pair;
};

TEST_F(LaneToCome, ARenewalWaitsForIt) {
  pair.a.attach(1);
  pair.b.attach(1);
  OutgoingMessage message(1, 1, 5000, 1);
  pair.send(pair.a, message);
  pair.settle();
  EXPECT_EQ(pair.b.link->stats().renewals, 0u);
  EXPECT_FALSE(pair.b.observer.error);
  auto lane = make_secure_streams({test_credentials({}), test_credentials({})}, AF_UNIX);
  ASSERT_TRUE(succeeds(static_cast<StreamLink&>(*pair.a.link).add_lane(std::move(lane.first))));
  ASSERT_TRUE(succeeds(static_cast<StreamLink&>(*pair.b.link).add_lane(std::move(lane.second))));
  ASSERT_TRUE(pair.turn_until([&] { return pair.b.link->stats().renewals == 1; }));
  expect_carried(pair, 10, [] {});
}

TEST_F(LaneToCome, APeerDoesNotFillTheMemoryMeanwhile) {
  const std::vector<std::byte> much(kMaxInlineBytes);
  for (int n = 0; n < 4; ++n)
    pair.a.link->post(word_of(secure::RenewalWord::handshake, much.size()), much);
  pair.settle();
  expect_violation(pair.b, "or with too much", "peer a");
}

}  // namespace
}  // namespace tendon::test
