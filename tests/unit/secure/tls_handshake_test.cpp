// SPDX-License-Identifier: Apache-2.0
// Both ends of a handshake in one thread, and foreign ends that use OpenSSL alone.
#include "secure/tls_handshake.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>

#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/secure/credentials.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using namespace tendon::detail::secure;
using Role = TlsHandshake::Role;
using State = TlsHandshake::State;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_view_literals;

/// Two ends, and the bytes that they have sent.
struct Ends {
  std::unique_ptr<TlsHandshake> client;
  std::unique_ptr<TlsHandshake> server;
  std::vector<std::byte> from_client{};  // not delivered yet
  std::vector<std::byte> from_server{};
  std::optional<Error> client_error{};
  std::optional<Error> server_error{};
  std::size_t client_bytes = 0;
  std::size_t server_bytes = 0;
  std::size_t server_last_bytes = 0;

  static Ends between(std::shared_ptr<const Credentials> client,
                      std::shared_ptr<const Credentials> server, TlsHandshakeOptions of_client = {},
                      TlsHandshakeOptions of_server = {}) {
    return {TlsHandshake::make(std::move(client), Role::client, std::move(of_client)).value(),
            TlsHandshake::make(std::move(server), Role::server, std::move(of_server)).value()};
  }

  void turn_client(Bytes input) {
    if (client->state() != State::answer) return;
    const std::size_t before = from_client.size();
    if (auto done = client->advance(input, from_client); !done) client_error = done.error();
    client_bytes += from_client.size() - before;
  }
  void turn_server(Bytes input) {
    if (server->state() == State::done || server->state() == State::failed) return;
    const std::size_t before = from_server.size();
    if (auto done = server->advance(input, from_server); !done) server_error = done.error();
    server_bytes += from_server.size() - before;
    server_last_bytes = from_server.size() - before;
  }
  /// Runs until neither end sends anything.
  void run() {
    turn_client({});
    while (!from_client.empty() || !from_server.empty()) {
      turn_server(std::exchange(from_client, {}));
      turn_client(std::exchange(from_server, {}));
    }
  }
  [[nodiscard]] bool are_done() const {
    return client->state() == State::done && server->state() == State::done;
  }
};

std::vector<std::byte> copy(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

void expect_agreement(Ends& ends) {
  ASSERT_TRUE(ends.are_done()) << (ends.client_error ? ends.client_error->detail : "")
                               << (ends.server_error ? ends.server_error->detail : "");
  const TlsSession here = ends.client->take_session();
  const TlsSession there = ends.server->take_session();
  EXPECT_TRUE(std::ranges::equal(here.sending.bytes(), there.receiving.bytes()));
  EXPECT_TRUE(std::ranges::equal(here.receiving.bytes(), there.sending.bytes()));
  EXPECT_TRUE(std::ranges::equal(here.lane_key.bytes(), there.lane_key.bytes()));
  EXPECT_TRUE(std::ranges::equal(here.host_key.bytes(), there.host_key.bytes()));
  EXPECT_FALSE(std::ranges::equal(here.sending.bytes(), here.receiving.bytes()));
  EXPECT_FALSE(std::ranges::equal(here.lane_key.bytes(), here.host_key.bytes()));
  EXPECT_TRUE(
      std::ranges::any_of(here.sending.bytes(), [](std::byte b) { return b != std::byte{}; }));
}

TEST(TlsHandshake, BothEndsOfAKeyKnowTheSame) {
  Ends ends = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'));
  ends.run();
  expect_agreement(ends);
}

TEST(TlsHandshake, AKeyIsAnIdentity) {
  Ends ends = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'));
  ends.run();
  ASSERT_TRUE(ends.are_done());
  for (TlsHandshake* end : {ends.client.get(), ends.server.get()}) {
    const TlsSession session = end->take_session();
    EXPECT_EQ(session.identity, "key:fleet");
    EXPECT_EQ(session.proof, PeerProof::key);
    EXPECT_TRUE(session.records.empty());
  }
}

TEST(TlsHandshake, TwoKeysOfOneLabelAreTwoCredentials) {
  std::vector<std::string> credentials;
  for (const char fill : {'a', 'a', 'b'}) {
    Ends ends = Ends::between(with_key("fleet", fill), with_key("fleet", fill));
    ends.run();
    ASSERT_TRUE(ends.are_done());
    credentials.push_back(ends.client->take_session().credential);
    EXPECT_EQ(credentials.back(), ends.server->take_session().credential);
  }
  EXPECT_EQ(credentials[0], credentials[1]);
  EXPECT_NE(credentials[0], credentials[2]);
  EXPECT_FALSE(credentials[0].empty());
}

TEST(TlsHandshake, AServerTakesEachOfItsKeys) {
  CredentialParts parts;
  parts.keys.push_back(shared_key("new", 'n'));
  parts.keys.push_back(shared_key("old", 'o'));
  const auto server = Credentials::make(std::move(parts)).value();
  for (const auto& client : {with_key("new", 'n'), with_key("old", 'o')}) {
    Ends ends = Ends::between(client, server);
    ends.run();
    expect_agreement(ends);
  }
}

TEST(TlsHandshake, ByteByByte) {
  Ends ends = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'));
  ends.turn_client({});
  while (!ends.from_client.empty() || !ends.from_server.empty()) {
    for (const std::byte byte : std::exchange(ends.from_client, {})) ends.turn_server({&byte, 1});
    for (const std::byte byte : std::exchange(ends.from_server, {})) ends.turn_client({&byte, 1});
  }
  expect_agreement(ends);
}

TEST(TlsHandshake, BytesBehindItAreRecords) {
  Ends ends = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'));
  ends.turn_client({});
  ends.turn_server(std::exchange(ends.from_client, {}));
  ends.turn_client(std::exchange(ends.from_server, {}));
  const auto behind = copy(as_bytes("a record"));
  ends.from_client.insert(ends.from_client.end(), behind.begin(), behind.end());
  ends.turn_server(std::exchange(ends.from_client, {}));
  ASSERT_TRUE(ends.are_done());
  EXPECT_EQ(ends.server->take_session().records, behind);
}

TEST(TlsHandshake, AWrongKeyAndAnUnknownLabelAreRefusedAlike) {
  std::vector<std::vector<std::byte>> alerts;
  for (const auto& client : {with_key("fleet", 'b'), with_key("other", 'a')}) {
    Ends ends = Ends::between(client, with_key("fleet", 'a'));
    ends.turn_client({});
    ends.turn_server(std::exchange(ends.from_client, {}));
    ASSERT_TRUE(ends.server_error);
    EXPECT_EQ(ends.server_error->code, ErrorCode::authentication_failed);
    EXPECT_THAT(ends.server_error->detail,
                HasSubstr(alerts.empty() ? "named 'key:fleet'" : "that this end does not have"));
    alerts.push_back(ends.from_server);
    ends.turn_client(std::exchange(ends.from_server, {}));
    ASSERT_TRUE(ends.client_error);
    EXPECT_EQ(ends.client_error->code, ErrorCode::authentication_failed);
    EXPECT_THAT(ends.client_error->detail, HasSubstr("of this end (illegal parameter): "));
    EXPECT_THAT(ends.client_error->detail, HasSubstr("`tendon key id`"));
  }
  EXPECT_FALSE(alerts[0].empty());
  EXPECT_EQ(alerts[0], alerts[1]);
}

TEST(TlsHandshake, AServerWithoutTheKeyIsRefused) {
  const Certificate authority = Certificate::authority("another");
  const Certificate own = authority.sign({});
  Ends ends = Ends::between(with_key("fleet", 'a'), with_certificate(own, authority));
  ends.run();
  ASSERT_TRUE(ends.client_error);
  EXPECT_EQ(ends.client_error->code, ErrorCode::authentication_failed);
  EXPECT_NE(ends.server->state(), State::done);
}

TEST(TlsHandshake, ACertificateForAServerOfKeysIsRefused) {
  const Certificate authority = Certificate::authority("ours");
  Ends ends =
      Ends::between(with_certificate(authority.sign({}), authority), with_key("fleet", 'a'));
  ends.run();
  ASSERT_TRUE(ends.client_error && ends.server_error);
  EXPECT_EQ(ends.client_error->code, ErrorCode::authentication_failed);
  EXPECT_EQ(ends.server_error->code, ErrorCode::authentication_failed);
  EXPECT_THAT(ends.client_error->detail, HasSubstr("it has no certificate to show"));
  EXPECT_THAT(ends.client_error->detail, Not(HasSubstr("key id")));
  EXPECT_THAT(ends.server_error->detail, HasSubstr("of this end are keys alone"));
}

class Certificates : public ::testing::Test {
 protected:
  /// The client shows `client`, and the server a valid certificate.
  Ends show_to_server(const Certificate& client,
                      const std::vector<const Certificate*>& issuers = {}) {
    Ends ends = Ends::between(Credentials::make(parts_of(client, issuers, authority_)).value(),
                              with_certificate(authority_.sign({}), authority_));
    ends.run();
    return ends;
  }
  void expect_refused(const Certificate& bad, const std::string& why) {
    for (const bool is_client : {true, false}) {
      const auto good = with_certificate(authority_.sign({}), authority_);
      const auto wrong = with_certificate(bad, authority_);
      Ends ends = is_client ? Ends::between(wrong, good) : Ends::between(good, wrong);
      ends.run();
      const auto& error = is_client ? ends.server_error : ends.client_error;
      ASSERT_TRUE(error) << why;
      EXPECT_EQ(error->code, ErrorCode::authentication_failed);
      EXPECT_THAT(error->detail, HasSubstr(why));
      // A client finishes before the server has checked its certificate, and then receives an
      // alert.
      if (!is_client) {
        EXPECT_FALSE(ends.are_done());
      }
      if (is_client) alerts_.push_back(ends.server_last_bytes);
    }
  }

  const Certificate authority_ = Certificate::authority("ours");
  std::vector<std::size_t> alerts_;
};

TEST_F(Certificates, AreAnIdentity) {
  Ends ends = Ends::between(with_certificate(authority_.sign({}), authority_),
                            with_certificate(authority_.sign({}), authority_),
                            {.expected_peer = "tendon://robot/7"});
  ends.run();
  ASSERT_TRUE(ends.are_done());
  const TlsSession session = ends.server->take_session();
  EXPECT_EQ(session.proof, PeerProof::certificate);
  EXPECT_EQ(session.identity, "tendon://robot/7");
  EXPECT_THAT(session.names,
              ::testing::ElementsAre("tendon://robot/7", "dns:robot-7.example", "ip:127.0.0.1"));
  EXPECT_EQ(ends.client->take_session().identity, "tendon://robot/7");
}

TEST_F(Certificates, TheDialledNameMustBeInThem) {
  const auto credentials = with_certificate(authority_.sign({}), authority_);
  for (const std::string name : {"tendon://robot/7", "robot-7.example", "127.0.0.1"}) {
    Ends ends = Ends::between(credentials, credentials, {.expected_peer = name});
    ends.run();
    expect_agreement(ends);
  }
  for (const std::string name : {"tendon://robot/8", "tendon://robot", "robot-8.example",
                                 "127.0.0.2", "an end", "7.example"}) {
    Ends ends = Ends::between(credentials, credentials, {.expected_peer = name});
    ends.run();
    ASSERT_TRUE(ends.client_error) << name;
    EXPECT_EQ(ends.client_error->code, ErrorCode::authentication_failed);
    EXPECT_THAT(ends.client_error->detail, HasSubstr("'" + name + "' is expected"));
  }
}

TEST_F(Certificates, OfOthersOrOutOfDateAreRefused) {
  expect_refused(authority_.sign({.valid_from_s = -120, .valid_to_s = -60}), "expired");
  expect_refused(authority_.sign({.valid_from_s = 60}), "not yet valid");
  expect_refused(Certificate::root({}), "signed by itself");
  expect_refused(Certificate::authority("ours").sign({}), "of another CA");
  expect_refused(Certificate::authority("foreign").sign({}), "of another CA");
  expect_refused(authority_.sign({.names = "email:a@robot.example"}), "names nobody");
  expect_refused(authority_.sign({.names = "URI:key:fleet, URI:session:17"}), "names nobody");
  expect_refused(authority_.sign({.names = "IP:127.0.0.1"}), "names nobody");
  // Each reason has the same alert.
  EXPECT_THAT(alerts_, ::testing::Each(alerts_.front()));
}

TEST_F(Certificates, AreOfTheirFirstUriElseOfTheirFirstDnsName) {
  struct Row {
    std::string names;
    std::string identity;
  };
  for (const auto& [names, identity] : {
           Row{"IP:127.0.0.1, DNS:robot-7, DNS:a.example", "dns:robot-7"},
           Row{"DNS:a.example, IP:127.0.0.1, URI:tendon:b, URI:tendon:a", "tendon:b"},
       }) {
    Ends ends = show_to_server(authority_.sign({.names = names}));
    ASSERT_TRUE(ends.are_done()) << names;
    EXPECT_EQ(ends.server->take_session().identity, identity);
  }
}

// The key of a client that wants a name proves none.
TEST_F(Certificates, AreShownByWhoMustNotShowAKey) {
  const auto both = [&](const Certificate& own) {
    CredentialParts parts = parts_of(own, {}, authority_);
    parts.keys.push_back(shared_key("fleet", 'a'));
    return Credentials::make(std::move(parts)).value();
  };
  for (const std::string name : {"robot-7.example", "nobody"}) {
    Ends ends =
        Ends::between(both(authority_.sign({})), both(authority_.sign({})),
                      {.expected_peer = name, .own_identity = std::string(secure::kByCertificate)});
    ends.run();
    ASSERT_EQ(ends.are_done(), name != "nobody") << name;
    if (!ends.are_done()) continue;
    EXPECT_EQ(ends.client->take_session().proof, PeerProof::certificate);
    EXPECT_EQ(ends.server->take_session().proof, PeerProof::certificate);
  }
}

TEST_F(Certificates, OfAServerAloneAreNoneOfAClient) {
  const Certificate only = authority_.sign({.usage = "serverAuth"});
  Ends ends = show_to_server(only);
  ASSERT_TRUE(ends.server_error);
  EXPECT_EQ(ends.server_error->code, ErrorCode::authentication_failed);
  EXPECT_THAT(ends.server_error->detail, HasSubstr("purpose"));
}

TEST_F(Certificates, ThreeFitInAFirstFlightAndFourAreTooMany) {
  const Certificate first = authority_.sign_authority("an intermediate authority, the first");
  const Certificate second = first.sign_authority("an intermediate authority, the second");
  const Certificate third = second.sign_authority("an intermediate authority, the third");
  const Certificate end = second.sign({});
  Ends ends = show_to_server(end, {&second, &first});
  expect_agreement(ends);
  // The asking end of a cable has room for this many bytes before it is answered.
  EXPECT_LE(ends.client_bytes, 8192u);
  EXPECT_LE(ends.server_bytes, 8192u);
  const Certificate far = third.sign({});
  Ends refused = show_to_server(far, {&third, &second, &first});
  ASSERT_TRUE(refused.server_error);
  EXPECT_EQ(refused.server_error->code, ErrorCode::authentication_failed);
  EXPECT_THAT(refused.server_error->detail, HasSubstr("more than 2 certificates"));
}

TEST_F(Certificates, AClientWithoutOneIsRefused) {
  Ends ends =
      Ends::between(with_key("fleet", 'a'), with_certificate(authority_.sign({}), authority_));
  ends.run();
  EXPECT_NE(ends.server->state(), State::done);
}

TEST(TlsHandshake, ALaneJoinsItsSessionAlone) {
  Ends control = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'));
  control.run();
  ASSERT_TRUE(control.are_done());
  const TlsSession session = control.client->take_session();
  const TlsSession of_server = control.server->take_session();
  const auto find = [&](std::string_view id) -> std::optional<Secret<kSharedKeyBytes>> {
    if (id != "17") return std::nullopt;
    Secret<kSharedKeyBytes> key;
    std::ranges::copy(of_server.lane_key.bytes(), key.bytes().begin());
    return key;
  };
  const auto dial = [&](const std::string& id, Bytes key) {
    Ends lane = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'),
                              {.session_id = id, .session_key = key}, {.find_session = find});
    lane.run();
    return lane;
  };
  Ends joined = dial("17", session.lane_key.bytes());
  ASSERT_TRUE(joined.are_done());
  const TlsSession lane = joined.server->take_session();
  EXPECT_EQ(lane.proof, PeerProof::session);
  EXPECT_EQ(lane.identity, "session:17");
  EXPECT_FALSE(std::ranges::equal(lane.sending.bytes(), of_server.sending.bytes()));
  Ends unknown = dial("18", session.lane_key.bytes());
  Ends wrong = dial("17", session.host_key.bytes());
  // No credentials are wrong, so the error is not about identity. The client receives the alert for
  // keys.
  for (Ends* refused : {&unknown, &wrong}) {
    EXPECT_FALSE(refused->are_done());
    ASSERT_TRUE(refused->server_error && refused->client_error);
    EXPECT_EQ(refused->server_error->code, ErrorCode::protocol_violation);
    EXPECT_THAT(refused->server_error->detail, HasSubstr("session"));
    EXPECT_EQ(refused->client_error->code, ErrorCode::authentication_failed);
  }
}

TEST(TlsHandshake, WhatIsNotTlsIsRefusedByItsFirstBytes) {
  for (const std::string_view said :
       {"TNDN"sv, "GET / HTTP/1.1"sv, "\x16\x02"sv, "\x16\x03\x01\x20\x00"sv, "\x15\x03\x03"sv}) {
    auto server = TlsHandshake::make(with_key("fleet", 'a'), Role::server).value();
    std::vector<std::byte> output;
    const auto done = server->advance(as_bytes(said), output);
    ASSERT_FALSE(done) << said;
    EXPECT_EQ(done.error().code, ErrorCode::protocol_violation);
    // The alert is in plaintext, so that a peer that has lost its key sees that this is TLS.
    EXPECT_EQ(as_text(output), "\x15\x03\x03\x00\x02\x02\x0a"sv);
  }
}

TEST(TlsHandshake, AListenerThatSpeaksNoTlsIsKnownByItsFirstByte) {
  for (const std::string_view said :
       {"T"sv, "TNDN\x01\x00"sv, "HTTP/1.1 400 Bad Request\r\n"sv, "SSH-2.0-x"sv, "\x80\x2e"sv}) {
    auto client = TlsHandshake::make(with_key("fleet", 'a'), Role::client).value();
    std::vector<std::byte> output;
    client->advance({}, output).value();
    const auto done = client->advance(as_bytes(said), output);
    EXPECT_TRUE(fails_with(done, ErrorCode::protocol_violation, "does not speak TLS"));
    if (done) continue;
    EXPECT_EQ(done.error().remedy(), Remedy::use_another);
    EXPECT_THAT(done.error().message(), Not(HasSubstr("report a bug")));
  }
}

TEST(TlsHandshake, AHelloThatIsSentBackIsRefused) {
  auto client = TlsHandshake::make(with_key("fleet", 'a'), Role::client).value();
  std::vector<std::byte> hello;
  client->advance({}, hello).value();
  std::vector<std::byte> output;
  const auto done = client->advance(hello, output);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::protocol_violation);
}

TEST(TlsHandshake, CutAtEachByteItIsNotDone) {
  Ends whole = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'));
  whole.turn_client({});
  const auto hello = whole.from_client;
  for (std::size_t bytes = 0; bytes < hello.size(); ++bytes) {
    auto server = TlsHandshake::make(with_key("fleet", 'a'), Role::server).value();
    std::vector<std::byte> output;
    server->advance(Bytes(hello).first(bytes), output).value();
    EXPECT_EQ(server->state(), State::hello);
    EXPECT_TRUE(output.empty());
  }
}

// But the version in the header of the server's first record, which says nothing (RFC 8446, 5.1).
// The end that sees the bit calls it a violation. In the ClientHello it may also be a key that the
// peer has not: the binder, the last that is in it, is over all before it.
TEST(TlsHandshake, AFlippedBitAnywhereEndsIt) {
  const auto credentials = with_key("fleet", 'a');
  constexpr std::size_t kBinderBytes = 48;
  std::size_t unproved = 0;
  for (std::size_t at = 0;; ++at) {
    ASSERT_LT(at, 4096u) << "no handshake is as long";
    Ends ends = Ends::between(credentials, credentials);
    ends.turn_client({});
    auto hello = std::exchange(ends.from_client, {});
    if (at < hello.size()) hello[at] ^= std::byte{4};
    ends.turn_server(hello);
    auto flight = std::exchange(ends.from_server, {});
    if (at >= hello.size() && at < hello.size() + flight.size())
      flight[at - hello.size()] ^= std::byte{4};
    ends.turn_client(flight);
    auto last = std::exchange(ends.from_client, {});
    const std::size_t before = hello.size() + flight.size();
    if (at >= before && at < before + last.size()) last[at - before] ^= std::byte{4};
    ends.turn_server(last);
    if (at >= before + last.size() && ends.are_done()) break;
    if (at == hello.size() + 1 || at == hello.size() + 2) continue;
    ASSERT_FALSE(ends.are_done()) << "byte " << at;
    const bool is_in_flight = at >= hello.size() && at < before;
    const auto& seen = is_in_flight ? ends.client_error : ends.server_error;
    if (!seen) continue;  // a length: the end waits for what is missing
    const bool is_unproved = seen->code == ErrorCode::authentication_failed;
    if (is_unproved) ++unproved;
    if (at >= hello.size() || at < 9) {
      ASSERT_EQ(seen->code, ErrorCode::protocol_violation) << "byte " << at << seen->detail;
    } else if (at + kBinderBytes >= hello.size()) {
      ASSERT_TRUE(is_unproved) << "byte " << at << seen->detail;
    } else {
      ASSERT_TRUE(is_unproved || seen->code == ErrorCode::protocol_violation) << seen->detail;
    }
  }
  EXPECT_GT(unproved, kBinderBytes) << "the binder is over the random bytes, too";
}

// A member of the CA on the path declines the key of a lane's session, and shows its own
// certificate.
TEST(TlsHandshake, ALaneIsNotAnsweredByAnotherMember) {
  const Certificate authority = Certificate::authority("ours");
  const Certificate member = authority.sign({});
  const CryptoOwned<SSL_CTX> context(
      SSL_CTX_new_ex(crypto_library(), nullptr, TLS_server_method()));
  ASSERT_EQ(SSL_CTX_use_certificate(context.get(), member.certificate().get()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context.get(), member.key().get()), 1);
  SSL_CTX_clear_options(context.get(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_alpn_select_cb(
      context.get(),
      [](SSL*, const unsigned char** chosen, unsigned char* bytes, const unsigned char* offered,
         unsigned, void*) {
        *chosen = offered + 1;
        *bytes = offered[0];
        return SSL_TLSEXT_ERR_OK;
      },
      nullptr);
  const CryptoOwned<SSL> rogue(SSL_new(context.get()));
  SSL_set_bio(rogue.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  BIO_set_mem_eof_return(SSL_get_rbio(rogue.get()), -1);
  SSL_set_accept_state(rogue.get());

  const std::vector<std::byte> key(kSharedKeyBytes, std::byte{7});
  auto lane = TlsHandshake::make(with_certificate(authority.sign({}), authority), Role::client,
                                 {.session_id = "17", .session_key = key})
                  .value();
  std::vector<std::byte> said;
  lane->advance({}, said).value();
  BIO_write(SSL_get_rbio(rogue.get()), said.data(), static_cast<int>(said.size()));
  (void)SSL_do_handshake(rogue.get());
  const char* answer = nullptr;
  const long bytes = BIO_get_mem_data(SSL_get_wbio(rogue.get()), &answer);
  const auto done =
      lane->advance(std::as_bytes(std::span(answer, static_cast<std::size_t>(bytes))), said);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::protocol_violation) << done.error().detail;
  EXPECT_THAT(done.error().detail, HasSubstr("not of its session"));
}

// A client of OpenSSL that may do things that ours never does.
struct ForeignClient {
  CryptoOwned<SSL_CTX> context;
  CryptoOwned<SSL> ssl;

  explicit ForeignClient(bool says_protocol = true) {
    context.reset(SSL_CTX_new_ex(crypto_library(), nullptr, TLS_client_method()));
    SSL_CTX_set_psk_use_session_callback(context.get(), &use_key);
    if (says_protocol) {
      SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>("\x08tendon/1"),
                              9);
    }
  }
  static int use_key(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* bytes,
                     SSL_SESSION** session) {
    static const std::string kIdentity = "key:fleet";
    static const std::string kKey(kSharedKeyBytes, 'a');
    *session = SSL_SESSION_new();
    const unsigned char suite[] = {0x13, 0x02};
    SSL_SESSION_set1_master_key(*session, reinterpret_cast<const unsigned char*>(kKey.data()),
                                kKey.size());
    SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
    *id = reinterpret_cast<const unsigned char*>(kIdentity.data());
    *bytes = kIdentity.size();
    return 1;
  }
  /// Returns our server's final result.
  Result<void> meet() {
    ssl.reset(SSL_new(context.get()));
    SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(ssl.get()), -1);
    SSL_set_connect_state(ssl.get());
    auto server = TlsHandshake::make(with_key("fleet", 'a'), Role::server).value();
    for (;;) {
      (void)SSL_do_handshake(ssl.get());
      const char* data = nullptr;
      const long bytes = BIO_get_mem_data(SSL_get_wbio(ssl.get()), &data);
      const auto said = copy(std::as_bytes(std::span(data, static_cast<std::size_t>(bytes))));
      (void)BIO_reset(SSL_get_wbio(ssl.get()));
      if (said.empty()) {
        return Error{ErrorCode::internal, "test", "the client has no more to say"};
      }
      std::vector<std::byte> output;
      auto done = server->advance(said, output);
      if (!done || server->state() == State::done) return done;
      BIO_write(SSL_get_rbio(ssl.get()), output.data(), static_cast<int>(output.size()));
    }
  }
};

TEST(TlsHandshake, AnOtherImplementationWithTheKeyIsLetIn) {
  ForeignClient client;
  SSL_CTX_clear_options(client.context.get(), SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  const auto met = client.meet();
  EXPECT_TRUE(met) << met.error().detail;
}

TEST(TlsHandshake, OlderTlsOtherProtocolsAndSuitesAreRefused) {
  ForeignClient older;
  SSL_CTX_set_max_proto_version(older.context.get(), TLS1_2_VERSION);
  ForeignClient no_protocol(false);
  ForeignClient other_protocol(false);
  SSL_CTX_set_alpn_protos(other_protocol.context.get(),
                          reinterpret_cast<const unsigned char*>("\x02h2"), 3);
  ForeignClient other_suite;
  SSL_CTX_set_ciphersuites(other_suite.context.get(), "TLS_CHACHA20_POLY1305_SHA256");
  ForeignClient other_group;
  SSL_CTX_set1_groups_list(other_group.context.get(), "P-521");
  for (ForeignClient* client :
       {&older, &no_protocol, &other_protocol, &other_suite, &other_group}) {
    const auto met = client->meet();
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().code, ErrorCode::protocol_violation) << met.error().detail;
  }
}

TEST(Credentials, SayWhichPartIsWrong) {
  const auto why = [](CredentialParts parts) {
    const auto made = Credentials::make(std::move(parts));
    return made ? std::string("nothing") : made.error().detail;
  };
  const Certificate authority = Certificate::authority("ours");
  const Certificate own = authority.sign({});
  EXPECT_THAT(why({}), HasSubstr("need a key"));
  CredentialParts no_key = parts_of(own, {}, authority);
  no_key.certificate_key.reset();
  EXPECT_THAT(why(std::move(no_key)),
              HasSubstr("cert and ca are given without cert_key (--cert-key, TENDON_CERT_KEY)"));
  CredentialParts no_authority = parts_of(own, {}, authority);
  no_authority.authorities.clear();
  EXPECT_THAT(why(std::move(no_authority)),
              HasSubstr("cert and cert_key are given without ca (--ca, TENDON_CA)"));
  CredentialParts other_key = parts_of(own, {}, authority);
  other_key.certificate_key = authority.key();
  EXPECT_THAT(why(std::move(other_key)), HasSubstr("not that of the certificate"));
  CredentialParts key_alone;
  key_alone.keys.push_back(shared_key("fleet", 'a'));
  key_alone.certificate_key = own.key();
  EXPECT_THAT(why(std::move(key_alone)),
              HasSubstr("cert_key is given without cert (--cert, TENDON_CERT)"));
  EXPECT_EQ(why(parts_of(own, {}, authority)), "nothing");
}

TEST(TlsHandshake, IsOfTheProcessThatLoadedTheCredentials) {
  auto ends = Ends::between(with_key("fleet", 'a'), with_key("fleet", 'a'));
  const auto credentials = with_key("fleet", 'a');
  const int status = run_in_child([&] {
    std::vector<std::byte> said;
    if (!fails_with(ends.client->advance({}, said), ErrorCode::forked) || !said.empty()) return 1;
    const auto begun = TlsHandshake::make(credentials, Role::client);
    return fails_with(begun, ErrorCode::forked) ? 0 : 2;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

}  // namespace
}  // namespace tendon::test
