// SPDX-License-Identifier: Apache-2.0
// Both ends of renewals in one thread: each order of words, each wrong one, and other identities.
#include "secure/renewal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <set>

#include "core/text.hpp"
#include "secure/renewed_secrets.hpp"
#include "support/secure/certificates.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using namespace tendon::detail::secure;
using namespace std::chrono_literals;
using Role = TlsHandshake::Role;
using ::testing::HasSubstr;

constexpr Renewal::TimePoint kBegin = Renewal::TimePoint{} + 1000h;

std::shared_ptr<const Credentials> fleet_keys(const std::vector<std::pair<std::string, char>>& keys,
                                              const Certificate* own = nullptr,
                                              const Certificate* authority = nullptr) {
  CredentialParts parts;
  for (const auto& [label, fill] : keys)
    parts.keys.push_back(
        {label, SecretBytes::copy_of(as_bytes(std::string(kSharedKeyBytes, fill))), {}});
  if (own != nullptr) {
    parts.chain.push_back(own->certificate());
    parts.certificate_key = own->key();
    parts.authorities.push_back(authority->certificate());
  }
  return Credentials::make(std::move(parts)).value();
}

RenewalTerms terms_of(Role role, std::shared_ptr<const Credentials> credentials) {
  RenewalTerms terms;
  terms.role = role;
  if (const SharedKey* const key = credentials->find_key("fleet"))
    terms.credential = key_id(*key).value();
  terms.credentials = std::move(credentials);
  terms.own_identity = "key:fleet";
  terms.identity = "key:fleet";
  return terms;
}

RenewalTerms by_certificate(Role role, std::shared_ptr<const Credentials> credentials,
                            const std::string& identity) {
  RenewalTerms terms = terms_of(role, std::move(credentials));
  terms.own_identity = "certificate";
  terms.identity = identity;
  terms.proof = PeerProof::certificate;
  return terms;
}

struct Said {
  RenewalWord word;
  std::vector<std::byte> bytes;
};

/// One end of a link: the words of its renewal, and the keys of its two directions.
struct RenewingEnd {
  explicit RenewingEnd(RenewalTerms terms) : renewal(std::move(terms), kBegin) {}

  void act(RenewalStep step) {
    if (step.agreed) {
      expects = renewal.count();
      session = renewal.take_session();
    }
    if (!step.handshake.empty()) said.push_back({RenewalWord::handshake, step.handshake});
    if (step.word) said.push_back({*step.word, {}});
    if (step.switches) sends_under = renewal.count();
    if (step.failed) error = step.failed;
  }

  Renewal renewal;
  std::deque<Said> said{};  // not delivered yet
  std::uint64_t expects = 0;
  std::uint64_t sends_under = 0;
  std::uint64_t reads_under = 0;
  TlsSession session{};
  std::optional<Error> error{};
  Renewal::TimePoint checked = kBegin + 2h;
};

struct RenewingLink {
  RenewingEnd client;
  RenewingEnd server;
  Renewal::TimePoint now = kBegin;

  explicit RenewingLink(RenewalTerms of_client, RenewalTerms of_server)
      : client(std::move(of_client)), server(std::move(of_server)) {}
  RenewingLink()
      : RenewingLink(terms_of(Role::client, fleet_keys({{"fleet", 'a'}})),
                     terms_of(Role::server, fleet_keys({{"fleet", 'a'}}))) {}

  /// Delivers the next word of `from`, in order; then the input of `to` may have switched.
  void deliver(RenewingEnd& from, RenewingEnd& to) {
    if (from.said.empty()) return;
    const Said next = std::move(from.said.front());
    from.said.pop_front();
    if (to.error) return;
    to.act(to.renewal.hear(next.word, next.bytes, now));
    note_switched(to);
  }
  static void note_switched(RenewingEnd& end) {
    if (!end.error && end.expects != 0 && end.reads_under == end.expects)
      end.act(end.renewal.note_switched());
  }
  /// Delivers the close_notify of `from`.
  void deliver_switch(RenewingEnd& from, RenewingEnd& to) {
    if (to.reads_under == from.sends_under || to.error) return;
    EXPECT_EQ(to.expects, from.sends_under) << "a switch that is not expected is an end";
    to.reads_under = from.sends_under;
    note_switched(to);
  }
  void run() {
    for (int round = 0; round < 20; ++round) {
      deliver(client, server);
      deliver(server, client);
      deliver_switch(client, server);
      deliver_switch(server, client);
    }
  }
};

/// Lets time pass for an end that looks at the clock every second.
void pass_time(RenewingEnd& end, std::chrono::nanoseconds time) {
  for (auto left = time; left > 0ns && !end.error; left -= 1s)
    end.act(end.renewal.check_time(end.checked += 1s));
}

void expect_renewed(const RenewingLink& link, std::uint64_t count) {
  EXPECT_FALSE(link.client.error) << link.client.error->message();
  EXPECT_FALSE(link.server.error) << link.server.error->message();
  EXPECT_EQ(link.client.renewal.state(), RenewalState::idle);
  EXPECT_EQ(link.server.renewal.state(), RenewalState::idle);
  for (const RenewingEnd* end : {&link.client, &link.server}) {
    EXPECT_EQ(end->renewal.count(), count);
    EXPECT_EQ(end->sends_under, count);
    EXPECT_EQ(end->reads_under, count);
  }
  const TlsSession& here = link.client.session;
  const TlsSession& there = link.server.session;
  EXPECT_EQ(here.id, there.id);
  EXPECT_TRUE(std::ranges::equal(here.renewal_key.bytes(), there.renewal_key.bytes()));
  EXPECT_TRUE(std::ranges::equal(here.lane_key.bytes(), there.lane_key.bytes()));
}

TEST(Renewal, GivesBothEndsANewSessionEachTime) {
  RenewingLink link;
  std::set<std::string> ids;
  for (std::uint64_t count = 1; count <= 3; ++count) {
    link.client.act(link.client.renewal.begin(count, link.now));
    link.run();
    expect_renewed(link, count);
    ids.insert(link.client.session.id);
  }
  EXPECT_EQ(ids.size(), 3u);
}

TEST(Renewal, IsDueByAgeAndByBytes) {
  RenewalTerms terms = terms_of(Role::client, fleet_keys({{"fleet", 'a'}}));
  EXPECT_EQ(terms.limits.age, 60min);
  EXPECT_EQ(terms.limits.bytes, std::uint64_t{1} << 40);
  terms.limits.bytes = 1000;
  const Renewal client(terms, kBegin);
  EXPECT_FALSE(client.is_due(999, kBegin + 60min - 1ns));
  EXPECT_TRUE(client.is_due(1000, kBegin));
  EXPECT_TRUE(client.is_due(0, kBegin + 60min));
  terms.earlier = 255;
  EXPECT_FALSE(Renewal(terms, kBegin).is_due(0, kBegin + 52min));
  EXPECT_TRUE(Renewal(terms, kBegin).is_due(0, kBegin + 53min));
  terms.role = Role::server;
  EXPECT_FALSE(Renewal(terms, kBegin).is_due(1000, kBegin + 60min));

  // The next renewal counts from the last one.
  RenewalTerms both = terms_of(Role::client, fleet_keys({{"fleet", 'a'}}));
  both.limits.bytes = 1000;
  RenewingLink link(both, terms_of(Role::server, both.credentials));
  link.client.act(link.client.renewal.begin(5000, kBegin + 1min));
  EXPECT_FALSE(link.client.renewal.is_due(9000, kBegin + 2min)) << "one is under way";
  link.run();
  EXPECT_FALSE(link.client.renewal.is_due(5999, kBegin + 61min - 1ns));
  EXPECT_TRUE(link.client.renewal.is_due(6000, kBegin + 2min));
  EXPECT_TRUE(link.client.renewal.is_due(5000, kBegin + 61min));
}

// Words and switches are independent streams. In whatever order they arrive, no switch arrives
// unexpected.
TEST(Renewal, InEachOrderOfWordsAndSwitches) {
  for (unsigned order = 0; order < 24; ++order) {
    std::array<int, 4> moves{0, 1, 2, 3};
    for (unsigned n = order; n != 0; --n) std::next_permutation(moves.begin(), moves.end());
    RenewingLink link;
    for (std::uint64_t count = 1; count <= 2; ++count) {
      link.client.act(link.client.renewal.begin(0, link.now));
      for (int round = 0; round < 20; ++round) {
        for (const int move : moves) {
          if (move == 0) link.deliver(link.client, link.server);
          if (move == 1) link.deliver(link.server, link.client);
          if (move == 2) link.deliver_switch(link.client, link.server);
          if (move == 3) link.deliver_switch(link.server, link.client);
        }
      }
      SCOPED_TRACE(order);
      expect_renewed(link, count);
    }
  }
}

// The bytes of TLS arrive in words of the size that a link chooses.
TEST(Renewal, InWordsOfAByteEach) {
  RenewingLink link;
  link.client.act(link.client.renewal.begin(0, link.now));
  for (int round = 0; round < 20; ++round) {
    for (RenewingEnd* end : {&link.client, &link.server}) {
      std::deque<Said> cut;
      for (const Said& said : end->said) {
        if (said.word != RenewalWord::handshake) cut.push_back(said);
        for (const std::byte byte :
             said.word == RenewalWord::handshake ? said.bytes : std::vector<std::byte>())
          cut.push_back({RenewalWord::handshake, {byte}});
      }
      end->said = std::move(cut);
      while (!end->said.empty())
        link.deliver(*end, end == &link.client ? link.server : link.client);
    }
    link.deliver_switch(link.client, link.server);
    link.deliver_switch(link.server, link.client);
  }
  expect_renewed(link, 1);
}

// An end that receives nothing more has not switched.
TEST(Renewal, CutAfterEachWordLeavesNoEndUnderKeysThatTheOtherDoesNotExpect) {
  for (int words = 0; words < 5; ++words) {
    RenewingLink link;
    link.client.act(link.client.renewal.begin(0, link.now));
    for (int n = 0; n < words; ++n) {
      RenewingEnd& from = link.client.said.empty() ? link.server : link.client;
      link.deliver(from, &from == &link.client ? link.server : link.client);
    }
    EXPECT_LE(link.client.sends_under, link.server.expects) << words;
    EXPECT_LE(link.server.sends_under, link.client.expects) << words;
    for (RenewingEnd* end : {&link.client, &link.server}) {
      const bool has_begun = end->renewal.state() != RenewalState::idle;
      pass_time(*end, RenewalLimits{}.age + RenewalLimits{}.deadline);
      EXPECT_EQ(end->error.has_value(), has_begun) << words;
      EXPECT_TRUE(!has_begun || end->error->code == ErrorCode::peer_lost);
    }
  }
}

TEST(Renewal, HasADeadline) {
  RenewalTerms terms = terms_of(Role::client, fleet_keys({{"fleet", 'a'}}));
  terms.limits.deadline = 5s;
  RenewingLink link(terms, terms_of(Role::server, terms.credentials));
  link.client.act(link.client.renewal.begin(0, link.now));
  // Time in which this process did not run does not count.
  link.client.act(link.client.renewal.check_time(link.now + 1h));
  link.client.act(link.client.renewal.check_time(link.now + 1h + 4s - 1ns));
  EXPECT_FALSE(link.client.error);
  pass_time(link.client, 5s);
  ASSERT_TRUE(link.client.error);
  EXPECT_THAT(link.client.error->message(), HasSubstr("did not end within 5000 ms"));
}

/// A word that is not due, in each state.
TEST(Renewal, RefusesAWordThatIsNotDue) {
  const std::vector<std::byte> noise(10, std::byte{1});
  // The progress of a link, and the words that may arrive at an end at that point.
  struct Point {
    int deliveries;
    Role end;
    RenewalState state;
    std::set<RenewalWord> legal;
  };
  const std::vector<Point> points{
      {-1, Role::client, RenewalState::idle, {RenewalWord::refused}},
      {-1, Role::server, RenewalState::idle, {RenewalWord::handshake, RenewalWord::refused}},
      {0, Role::client, RenewalState::shaking, {RenewalWord::handshake, RenewalWord::refused}},
      {1, Role::server, RenewalState::shaking, {RenewalWord::handshake, RenewalWord::refused}},
      {2, Role::client, RenewalState::confirming, {RenewalWord::done, RenewalWord::refused}},
      {3, Role::server, RenewalState::switching, {RenewalWord::refused}},
      {4, Role::client, RenewalState::switching, {RenewalWord::switched, RenewalWord::refused}},
  };
  for (const Point& point : points) {
    for (const RenewalWord word :
         {RenewalWord::handshake, RenewalWord::done, RenewalWord::switched, RenewalWord::refused}) {
      RenewingLink link;
      if (point.deliveries >= 0) link.client.act(link.client.renewal.begin(0, link.now));
      for (int n = 0; n < point.deliveries; ++n) {
        if (n % 2 == 0)
          link.deliver(link.client, link.server);
        else
          link.deliver(link.server, link.client);
      }
      RenewingEnd& end = point.end == Role::client ? link.client : link.server;
      ASSERT_EQ(end.renewal.state(), point.state) << point.deliveries;
      if (point.legal.contains(word)) continue;
      end.act(end.renewal.hear(word, word == RenewalWord::handshake ? Bytes(noise) : Bytes(),
                               link.now));
      SCOPED_TRACE(std::string(to_string(word)) + " while " + std::string(to_string(point.state)));
      ASSERT_TRUE(end.error);
      EXPECT_EQ(end.error->code, ErrorCode::protocol_violation) << end.error->message();
      EXPECT_EQ(end.renewal.state(), RenewalState::failed);
      EXPECT_TRUE(end.said.empty() || end.said.back().word != RenewalWord::refused);
    }
  }
}

TEST(Renewal, RefusesWordsOfTheWrongSize) {
  RenewingLink link;
  link.server.act(link.server.renewal.hear(RenewalWord::handshake, {}, link.now));
  ASSERT_TRUE(link.server.error);
  EXPECT_THAT(link.server.error->message(), HasSubstr("has 0 bytes"));
  RenewingLink other;
  const std::array<std::byte, 1> byte{};
  other.client.act(other.client.renewal.hear(RenewalWord::done, byte, other.now));
  ASSERT_TRUE(other.client.error);
  EXPECT_THAT(other.client.error->message(), HasSubstr("has 1 bytes"));
}

TEST(Renewal, RefusesNoiseAndTooMuchOfIt) {
  RenewingLink link;
  const std::vector<std::byte> noise(100, std::byte{0x17});
  link.server.act(link.server.renewal.hear(RenewalWord::handshake, noise, link.now));
  ASSERT_TRUE(link.server.error);
  EXPECT_EQ(link.server.error->code, ErrorCode::protocol_violation);
  EXPECT_TRUE(link.server.said.empty()) << "not even an alert";

  // A client takes 24 KiB in all, although each record may be legal so far.
  RenewingLink flood;
  flood.client.act(flood.client.renewal.begin(0, flood.now));
  std::vector<std::byte> record(8000, std::byte{0});
  record[0] = std::byte{22};
  record[1] = record[2] = std::byte{3};
  record[3] = std::byte{0x3f};
  record[4] = std::byte{0xff};
  for (int n = 0; n < 4 && !flood.client.error; ++n)
    flood.client.act(flood.client.renewal.hear(RenewalWord::handshake, record, flood.now));
  ASSERT_TRUE(flood.client.error);
  EXPECT_EQ(flood.client.error->code, ErrorCode::protocol_violation);
}

TEST(Renewal, IsBegunOnlySoOften) {
  RenewalTerms of_server = terms_of(Role::server, fleet_keys({{"fleet", 'a'}}));
  of_server.limits.starts = 3;
  of_server.limits.starts_within = 10s;
  RenewingLink link(terms_of(Role::client, of_server.credentials), of_server);
  const auto renew = [&] {
    link.client.act(link.client.renewal.begin(0, link.now));
    link.run();
  };
  for (int n = 0; n < 3; ++n) renew();
  link.now += 10s;
  for (int n = 0; n < 3; ++n) renew();
  expect_renewed(link, 6);
  renew();
  ASSERT_TRUE(link.server.error);
  EXPECT_THAT(link.server.error->message(), HasSubstr("more than 3 renewals in 10000 ms"));
}

// --- identities

/// Both ends fail: the one that checks has the name in its error, the other one has not.
void expect_refused(RenewingLink& link, RenewingEnd& by, const std::string& why) {
  link.client.act(link.client.renewal.begin(0, link.now));
  link.run();
  RenewingEnd& other = &by == &link.client ? link.server : link.client;
  ASSERT_TRUE(by.error);
  EXPECT_EQ(by.error->code, ErrorCode::authentication_failed);
  EXPECT_THAT(by.error->message(), HasSubstr(why));
  ASSERT_TRUE(other.error);
  EXPECT_EQ(other.error->code, ErrorCode::authentication_failed);
  EXPECT_EQ(other.error->detail,
            "the peer refused to renew the session with this end: its log has the reason");
  EXPECT_EQ(link.client.sends_under, 0u);
  EXPECT_EQ(link.server.sends_under, 0u);
}

TEST(Renewal, UnderAnotherKeyIsRefused) {
  RenewingLink link(terms_of(Role::client, fleet_keys({{"fleet", 'b'}})),
                    terms_of(Role::server, fleet_keys({{"fleet", 'a'}})));
  expect_refused(link, link.server, "has not the key");
}

// The peer has both keys, but takes the other one for the key of the link.
TEST(Renewal, UnderAnotherLabelIsRefused) {
  RenewalTerms of_client = terms_of(Role::client, fleet_keys({{"fleet", 'a'}, {"other", 'b'}}));
  of_client.own_identity = of_client.identity = "key:other";
  of_client.credential = key_id(*of_client.credentials->find_key("other")).value();
  RenewingLink link(of_client,
                    terms_of(Role::server, fleet_keys({{"fleet", 'a'}, {"other", 'b'}})));
  expect_refused(link, link.server, "proved to be 'key:other' (key), and was 'key:fleet' (key)");
}

// Both files received another key under the label of the link's key.
TEST(Renewal, UnderAnotherKeyOfTheSameLabelIsRefused) {
  RenewingLink link;
  link.client.renewal.use(fleet_keys({{"fleet", 'b'}}));
  link.server.renewal.use(fleet_keys({{"fleet", 'b'}}));
  expect_refused(link, link.client, "the key behind 'key:fleet' (key) has changed");
}

// A rotation makes another key the first to dial with, but the link keeps its own.
TEST(Renewal, GoesOnWithTheKeyOfTheLinkUntilThatIsRemoved) {
  RenewingLink link;
  link.client.renewal.use(fleet_keys({{"next", 'b'}, {"fleet", 'a'}}));
  link.server.renewal.use(fleet_keys({{"next", 'b'}, {"fleet", 'a'}}));
  link.client.act(link.client.renewal.begin(0, link.now));
  link.run();
  expect_renewed(link, 1);
  link.client.renewal.use(fleet_keys({{"next", 'b'}}));
  link.client.act(link.client.renewal.begin(0, link.now));
  link.run();
  ASSERT_TRUE(link.client.error);
  EXPECT_EQ(link.client.error->code, ErrorCode::authentication_failed);
  EXPECT_THAT(link.client.error->message(), HasSubstr("no key any more for 'key:fleet'"));
  ASSERT_TRUE(link.server.error);
  EXPECT_EQ(link.server.error->code, ErrorCode::authentication_failed);
}

TEST(Renewal, OfCertificatesTakesARenewedOneOfTheSameName) {
  const Certificate authority = Certificate::authority("fleet");
  CertificateText robot;
  robot.names = "URI:tendon:robot";
  CertificateText station;
  station.names = "URI:tendon:station";
  const auto robot_1 = authority.sign(robot);
  const auto robot_2 = authority.sign(robot);
  const auto server = authority.sign(station);
  RenewingLink link(
      by_certificate(Role::client, fleet_keys({}, &robot_1, &authority), "tendon:station"),
      by_certificate(Role::server, fleet_keys({}, &server, &authority), "tendon:robot"));
  for (std::uint64_t count = 1; count <= 2; ++count) {
    link.client.act(link.client.renewal.begin(0, link.now));
    link.run();
    expect_renewed(link, count);
    // An additional key changes nothing, because the link was proved by a certificate.
    link.client.renewal.use(fleet_keys({{"fleet", 'a'}}, &robot_2, &authority));
    link.server.renewal.use(fleet_keys({{"fleet", 'a'}}, &server, &authority));
  }
}

TEST(Renewal, OfCertificatesRefusesAnotherName) {
  const Certificate authority = Certificate::authority("fleet");
  CertificateText robot;
  robot.names = "URI:tendon:robot";
  CertificateText other;
  other.names = "URI:tendon:other";
  CertificateText expired = robot;
  expired.valid_to_s = -10;
  const auto right = authority.sign(robot);
  const auto wrong = authority.sign(other);
  const auto late = authority.sign(expired);
  const auto link_of = [&](const Certificate& client, const Certificate& server) {
    return RenewingLink(
        by_certificate(Role::client, fleet_keys({}, &client, &authority), "tendon:robot"),
        by_certificate(Role::server, fleet_keys({}, &server, &authority), "tendon:robot"));
  };
  RenewingLink of_client = link_of(wrong, right);
  expect_refused(of_client, of_client.server,
                 "'tendon:other' (certificate), and was 'tendon:robot'");
  RenewingLink of_server = link_of(right, wrong);
  expect_refused(of_server, of_server.client,
                 "'tendon:other' (certificate), and was 'tendon:robot'");
  RenewingLink of_time = link_of(late, right);
  expect_refused(of_time, of_time.server, "expired");
  RenewingLink of_server_time = link_of(right, late);
  expect_refused(of_server_time, of_server_time.client, "expired");
}

TEST(Renewal, ProvedInAnotherWayIsRefused) {
  const Certificate authority = Certificate::authority("fleet");
  CertificateText text;
  text.names = "URI:tendon:robot";
  const auto own = authority.sign(text);
  RenewalTerms of_client =
      by_certificate(Role::client, fleet_keys({}, &own, &authority), "tendon:robot");
  RenewalTerms of_server = terms_of(Role::server, fleet_keys({{"fleet", 'a'}}, &own, &authority));
  of_server.identity = "tendon:robot";
  RenewingLink link(of_client, of_server);
  expect_refused(link, link.server, "'tendon:robot' (certificate), and was 'tendon:robot' (key)");
}

// --- secrets

std::string hex_of(const TrafficSecret& secret) { return to_hex(secret.bytes()); }

// RFC 8446, section 7.1, calculated by another program.
TEST(RenewedSecrets, Golden) {
  std::vector<std::byte> key(kTrafficSecretBytes);
  for (std::size_t n = 0; n < key.size(); ++n) key[n] = static_cast<std::byte>(n);
  const auto made = renewed_secrets(key, Role::client, "00112233445566778899aabbccddeeff").value();
  EXPECT_EQ(hex_of(made.sending),
            "2150d2a3108d296cead20bb65a9e2c64ac62f3327d6a9881"
            "70f0785b4da5527f1027cdabb7924cc150bbf0cb944fc8de");
  EXPECT_EQ(hex_of(made.receiving),
            "3e2cb113097c8c927107e29a301ddecf09f16c538b427eda"
            "0f2eac770384054ad17db32a5058adcb0282ca9c8dddc7fe");
}

TEST(RenewedSecrets, AreOthersForEachConnectionAndDirection) {
  std::vector<std::byte> key(kTrafficSecretBytes, std::byte{7});
  std::set<std::string> all;
  for (const char* id : {"a", "b"}) {
    const auto here = renewed_secrets(key, Role::client, id).value();
    const auto there = renewed_secrets(key, Role::server, id).value();
    EXPECT_EQ(hex_of(here.sending), hex_of(there.receiving));
    EXPECT_EQ(hex_of(here.receiving), hex_of(there.sending));
    all.insert(hex_of(here.sending));
    all.insert(hex_of(here.receiving));
  }
  EXPECT_EQ(all.size(), 4u);
}

}  // namespace
}  // namespace tendon::test
